// What a file that does not start as GGUF is instead, in words: the download went wrong more often
// than the format.
#ifndef KVASIR_MODEL_FOREIGN_FILE_H_
#define KVASIR_MODEL_FOREIGN_FILE_H_

#include <cstddef>
#include <span>

#include "base/status.h"

namespace kvasir {

// The error for bytes that do not begin with the GGUF magic: names what they look like (empty, an
// HTML page, a git-lfs pointer, text, another model format, an archive) and what to do.
// REQUIRES: file does not begin with "GGUF".
Status NotGguf(std::span<const std::byte> file);

}  // namespace kvasir

#endif  // KVASIR_MODEL_FOREIGN_FILE_H_
