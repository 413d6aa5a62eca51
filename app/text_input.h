// Text from where the user says: a file, or standard input for "-".
#ifndef KVASIR_APP_TEXT_INPUT_H_
#define KVASIR_APP_TEXT_INPUT_H_

#include <string>

#include "base/status.h"

namespace kvasir {

// The whole content, at most 256 MiB. Errors name `path` ("standard input" for "-").
StatusOr<std::string> ReadText(const std::string& path);

// "standard input" for "-", else the path: how messages name it.
std::string InputName(const std::string& path);

}  // namespace kvasir

#endif  // KVASIR_APP_TEXT_INPUT_H_
