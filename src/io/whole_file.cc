#include "io/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr size_t kWriteBytes = size_t{64} << 20;  // Linux writes at most 2 GiB at once.

Status CannotWrite(const std::string& path, int error) {
  StatusCode code = StatusCode::kInternal;
  if (error == ENOENT || error == ENOTDIR) code = StatusCode::kNotFound;
  if (error == EACCES || error == EPERM || error == EROFS) code = StatusCode::kPermissionDenied;
  if (error == EEXIST) code = StatusCode::kAlreadyExists;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = StatusCode::kResourceExhausted;
  return MakeStatus(code, fmt::format("{}: cannot be written: {}", path, std::strerror(error)));
}

// A name beside `path` that nobody else uses.
std::string NameBeside(const std::string& path) {
  return fmt::format("{}.{}.part", path, static_cast<long>(::getpid()));
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

StatusOr<WholeFile> WholeFile::Create(const std::string& path, uint64_t bytes, Existing existing) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return InvalidArgument("the name of the file to write is empty or has a NUL character");
  }
  struct stat old = {};
  if (::stat(path.c_str(), &old) == 0) {
    if (!S_ISREG(old.st_mode)) return InvalidArgument("{}: is not a regular file", path);
    if (existing == Existing::kRefuse) return CannotWrite(path, EEXIST);
  }
  WholeFile file;
  file.path_ = path;
  file.existing_ = existing;
  constexpr mode_t kMode = 0666;  // Less the process's mask.
  // Without /proc it could not be given its name later.
  if (::access("/proc/self/fd", X_OK) == 0) {
    file.descriptor_ = ::open(FolderOf(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  }
  if (file.descriptor_ < 0) {
    const std::string name = NameBeside(path);
    file.descriptor_ = ::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode);
    if (file.descriptor_ < 0) return CannotWrite(path, errno);
    file.temporary_ = name;
  }
  if (bytes > 0 && ::fallocate(file.descriptor_, 0, 0, static_cast<off_t>(bytes)) != 0 &&
      errno != EOPNOTSUPP && errno != ENOSYS) {
    return CannotWrite(path, errno);
  }
  return file;
}

WholeFile::WholeFile(WholeFile&& other) noexcept { *this = std::move(other); }

WholeFile& WholeFile::operator=(WholeFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(existing_, other.existing_);
  return *this;
}

WholeFile::~WholeFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status WholeFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) const {
  KV_CHECK_GE(descriptor_, 0);
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kWriteBytes),
                                     static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return CannotWrite(path_, written < 0 ? errno : ENOSPC);
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return OkStatus();
}

Status WholeFile::Commit() {
  KV_CHECK_GE(descriptor_, 0);
  if (::fsync(descriptor_) != 0) return CannotWrite(path_, errno);
  KV_RETURN_IF_ERROR(Link());
  ::close(std::exchange(descriptor_, -1));
  // The name, too, is to survive a power failure. Folders that cannot be opened cannot be asked.
  const int folder = ::open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    (void)::fsync(folder);
    ::close(folder);
  }
  return OkStatus();
}

Status WholeFile::Link() {
  const std::string self = fmt::format("/proc/self/fd/{}", descriptor_);
  if (existing_ == Existing::kRefuse) {
    // Unlike rename, a link never takes the place of what has come there meanwhile.
    const int linked = temporary_.empty() ? ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD,
                                                     path_.c_str(), AT_SYMLINK_FOLLOW)
                                          : ::link(temporary_.c_str(), path_.c_str());
    return linked == 0 ? OkStatus() : CannotWrite(path_, errno);
  }
  if (temporary_.empty()) {
    const std::string name = NameBeside(path_);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return CannotWrite(path_, errno);
    }
    temporary_ = name;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return CannotWrite(path_, errno);
  temporary_.clear();
  return OkStatus();
}

}  // namespace kvasir
