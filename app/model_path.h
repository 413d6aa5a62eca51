// The MODEL argument that nearly every command has.
#ifndef KVASIR_APP_MODEL_PATH_H_
#define KVASIR_APP_MODEL_PATH_H_

#include <string>

#include "options.h"

namespace kvasir {

// Registers MODEL, also as --model so that file and environment can name it.
void AddModelPath(Options& options, std::string* path);

}  // namespace kvasir

#endif  // KVASIR_APP_MODEL_PATH_H_
