#include "model_path.h"

namespace kvasir {

void AddModelPath(Options& options, std::string* path) {
  options.Add("MODEL,--model", path, "Model file (GGUF)").Type("FILE").Required();
}

}  // namespace kvasir
