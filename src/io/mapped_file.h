// MappedFile: a file's bytes, mapped read-only.
//
// Pages come from the page cache on first touch; ReleasePages gives them back once they have been
// copied elsewhere, so that loading a model need not hold it twice. If another process truncates
// the file while it is mapped, touching the lost pages raises SIGBUS and ends this process: model
// files are to be replaced by rename, never overwritten in place.
// Thread: bytes() may be read from any thread; ReleasePages may run beside readers (they fault the
// pages in again).
#ifndef KVASIR_IO_MAPPED_FILE_H_
#define KVASIR_IO_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace kvasir {

class MappedFile {
 public:
  // kNotFound, kPermissionDenied or kInvalidArgument (a directory, an empty file, not a regular
  // file), each naming path and reason. `path` must not contain NUL characters.
  static StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;  // No bytes.
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }  // Never empty after Open.

  // Drops whole pages inside `range`; the bytes stay readable and are read again when touched.
  // Pages that `range` covers only in part stay. REQUIRES: range lies in bytes().
  void ReleasePages(std::span<const std::byte> range) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_IO_MAPPED_FILE_H_
