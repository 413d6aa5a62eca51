#include "model_path.h"

#include <CLI/CLI.hpp>

namespace kvasir {

void AddModelPath(CLI::App& app, std::string* path) {
  app.add_option("MODEL,--model", *path, "Model file (GGUF)")->type_name("FILE")->required();
}

}  // namespace kvasir
