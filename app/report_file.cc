#include "report_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "output.h"

namespace kvasir {
namespace {

Status CannotWrite(const std::string& path, int error) {
  return Internal("{}: cannot be written: {}", path, std::strerror(error));
}

bool IsSpecial(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

Status WriteAll(std::FILE* file, const std::string& path, std::string_view content) {
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) return CannotWrite(path, error);
  return closed ? OkStatus() : CannotWrite(path, errno);
}

// A new file beside `path`; removed at the end unless it took its place.
class FileBeside {
 public:
  // Of a link the file that it names is replaced.
  explicit FileBeside(const std::string& path) {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    target_ = error ? path : real.string();
    name_ = target_ + ".XXXXXX";
    const int descriptor = ::mkstemp(name_.data());
    if (descriptor < 0) return;
    // mkstemp's are for the owner only; this is to be like any new file, or like the old one.
    struct stat old;
    const mode_t mask = ::umask(0);
    ::umask(mask);
    const bool exists = ::stat(target_.c_str(), &old) == 0;
    (void)::fchmod(descriptor, exists ? old.st_mode & 07777 : 0666 & ~mask);
    file_ = ::fdopen(descriptor, "wb");
  }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;
  ~FileBeside() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    ::unlink(name_.c_str());
  }

  bool ok() const { return file_ != nullptr; }
  Status Replace(const std::string& path, std::string_view content) {
    const Status written = WriteAll(std::exchange(file_, nullptr), path, content);
    if (written.ok() && ::rename(name_.c_str(), target_.c_str()) == 0) return OkStatus();
    const int error = errno;
    ::unlink(name_.c_str());
    return written.ok() ? CannotWrite(path, error) : written;
  }

 private:
  std::string target_;
  std::string name_;
  std::FILE* file_ = nullptr;
};

}  // namespace

std::string ReportPathProblem(const std::string& path) {
  return path.empty() ? "needs the name of a file, or - for standard output" : std::string();
}

Status CheckReportFile(const std::string& path) {
  if (path == "-") return OkStatus();
  if (IsSpecial(path)) {
    return ::access(path.c_str(), W_OK) == 0 && !std::filesystem::is_directory(path)
               ? OkStatus()
               : CannotWrite(path, std::filesystem::is_directory(path) ? EISDIR : errno);
  }
  // A file that may not be changed is not replaced either, though its folder would allow it.
  if (::access(path.c_str(), F_OK) == 0 && ::access(path.c_str(), W_OK) != 0) {
    return CannotWrite(path, errno);
  }
  const FileBeside probe(path);
  return probe.ok() ? OkStatus() : CannotWrite(path, errno);
}

Status WriteReportFile(const std::string& path, std::string_view content) {
  if (path == "-") {
    Write(stdout, content);
    return OkStatus();
  }
  if (IsSpecial(path)) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    return file == nullptr ? CannotWrite(path, errno) : WriteAll(file, path, content);
  }
  FileBeside file(path);
  return file.ok() ? file.Replace(path, content) : CannotWrite(path, errno);
}

}  // namespace kvasir
