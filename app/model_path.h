// The MODEL argument that nearly every command has.
#ifndef KVASIR_APP_MODEL_PATH_H_
#define KVASIR_APP_MODEL_PATH_H_

#include <string>

namespace CLI {
class App;
}

namespace kvasir {

// Registers MODEL, also as --model so that file and environment can name it.
void AddModelPath(CLI::App& app, std::string* path);

}  // namespace kvasir

#endif  // KVASIR_APP_MODEL_PATH_H_
