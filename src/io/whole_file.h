// WholeFile: a file that appears under its name whole, when Commit is called, or not at all.
//
// It is written without a name where the file system can do that (O_TMPFILE), so that nothing is
// left behind even by a process that is killed; elsewhere under a name of its own beside the
// target, which the destructor removes. Thread: WriteAt from any thread, the rest from one.
#ifndef KVASIR_IO_WHOLE_FILE_H_
#define KVASIR_IO_WHOLE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace kvasir {

class WholeFile {
 public:
  enum class Existing { kRefuse, kReplace };

  // Reserves `bytes` on the disk, where the file system can. kAlreadyExists when the target is
  // there and is not to be replaced, kInvalidArgument when it is no regular file,
  // kResourceExhausted for a full disk, kNotFound, kPermissionDenied, each naming the path.
  static StatusOr<WholeFile> Create(const std::string& path, uint64_t bytes, Existing existing);

  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&& other) noexcept;
  ~WholeFile();

  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) const;

  // Brings everything to the disk and gives it its name. Once; afterwards nothing can be written.
  Status Commit();

 private:
  WholeFile() = default;
  Status Link();

  std::string path_;
  std::string temporary_;  // Empty while the file has no name.
  int descriptor_ = -1;
  Existing existing_ = Existing::kRefuse;
};

}  // namespace kvasir

#endif  // KVASIR_IO_WHOLE_FILE_H_
