#include "output.h"

namespace kvasir {

void Write(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  if (file == stderr) std::fflush(file);
}

bool OutputFailed() { return std::ferror(stdout) != 0; }

}  // namespace kvasir
