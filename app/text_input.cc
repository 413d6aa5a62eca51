#include "text_input.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace kvasir {
namespace {

// Longer than any context; keeps a wrong file name (a disk image) from filling memory.
constexpr size_t kMaxTextBytes = size_t{256} << 20;

}  // namespace

std::string InputName(const std::string& path) { return path == "-" ? "standard input" : path; }

StatusOr<std::string> ReadText(const std::string& path) {
  const std::string name = InputName(path);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(nullptr, &std::fclose);
  std::FILE* file = stdin;
  if (path != "-") {
    opened.reset(std::fopen(path.c_str(), "rb"));
    file = opened.get();
    if (file == nullptr) return NotFound("{}: cannot be opened: {}", name, std::strerror(errno));
    struct stat status;
    if (::fstat(::fileno(file), &status) == 0 && S_ISDIR(status.st_mode)) {
      return InvalidArgument("{}: is a directory", name);
    }
  }
  std::string text;
  char buffer[1 << 16];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), file)) > 0) {
    text.append(buffer, count);
    if (text.size() > kMaxTextBytes) {
      return InvalidArgument("{}: is longer than {} MiB", name, kMaxTextBytes >> 20);
    }
  }
  if (std::ferror(file) != 0) return NotFound("{}: cannot be read: {}", name, std::strerror(errno));
  return text;
}

}  // namespace kvasir
