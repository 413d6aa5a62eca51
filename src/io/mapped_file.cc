#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "io/descriptor.h"

namespace kvasir {
namespace {

Status FromErrno(const std::string& path, int error) {
  StatusCode code = StatusCode::kInternal;
  if (error == ENOENT || error == ENOTDIR) code = StatusCode::kNotFound;
  if (error == EACCES || error == EPERM) code = StatusCode::kPermissionDenied;
  if (error == EMFILE || error == ENFILE || error == ENOMEM) code = StatusCode::kResourceExhausted;
  if (error == ELOOP || error == ENAMETOOLONG) code = StatusCode::kInvalidArgument;
  return MakeStatus(code, fmt::format("{}: cannot open the file: {}", path, std::strerror(error)));
}

}  // namespace

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return InvalidArgument("a file name with a NUL character cannot be opened");
  }
  // O_NONBLOCK: a named pipe without a writer must not hang the open; regular files ignore it. The
  // mapping outlives the descriptor.
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return FromErrno(path, errno);
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0) return FromErrno(path, errno);
  if (S_ISDIR(status.st_mode)) return InvalidArgument("{}: is a directory, not a file", path);
  if (!S_ISREG(status.st_mode)) return InvalidArgument("{}: is not a regular file", path);
  if (status.st_size == 0) return InvalidArgument("{}: the file is empty", path);
  const auto size = static_cast<size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return FromErrno(path, errno);
  MappedFile file;
  file.path_ = path;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::exchange(other.path_, std::string())),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::ReleasePages(std::span<const std::byte> range) const {
  if (range.empty()) return;
  KV_CHECK(range.data() >= data_ && range.size() <= size_ &&
           static_cast<size_t>(range.data() - data_) <= size_ - range.size());
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // The mapping begins on a page, so offsets round as addresses do.
  const auto offset = static_cast<size_t>(range.data() - data_);
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = offset + range.size() == size_ ? (size_ + page - 1) / page * page
                                                    : (offset + range.size()) / page * page;
  if (begin >= end) return;
  // Advice only: a kernel that refuses it costs memory, not correctness.
  (void)madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace kvasir
