// DownloadTarget: the files of one download in its folder, and their order.
//
//   NAME               the finished file; appears whole, by renaming
//   NAME.origin        what NAME is a copy of
//   NAME.part          what has come so far
//   NAME.part.origin   what NAME.part is a part of
//   NAME.lock          exists while somebody works on these
//
// Killed at any time they are good for going on: the part is emptied before its record changes, and
// a record is replaced by renaming. Thread: one. Two processes are kept apart by the lock.
#ifndef KVASIR_IO_DOWNLOAD_TARGET_H_
#define KVASIR_IO_DOWNLOAD_TARGET_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "io/download_plan.h"

namespace kvasir {

class DownloadTarget {
 public:
  DownloadTarget(const std::string& folder, const std::string& name)
      : path_(folder + "/" + name), folder_(folder) {}
  ~DownloadTarget();  // However it ends, no empty part is left behind.
  DownloadTarget(const DownloadTarget&) = delete;
  DownloadTarget& operator=(const DownloadTarget&) = delete;

  const std::string& path() const { return path_; }

  // Creates the folder. false: another process (or DownloadTarget) holds the lock.
  StatusOr<bool> TryLock();

  // The rest needs the lock, but for these two, which only look.
  std::optional<uint64_t> FinishedBytes() const;  // nullopt: no such file.
  std::optional<DownloadRecord> FinishedRecord() const;

  // Opens NAME.part, creating it, and says how long it is. Mends what was cut off after the rename
  // of a finished file.
  StatusOr<uint64_t> OpenPart();
  std::optional<DownloadRecord> PartRecord() const;

  // Keeps `keep_bytes` of the part, which from now on is one of `record`.
  Status Begin(const DownloadRecord& record, uint64_t keep_bytes);
  // kResourceExhausted: the disk is full; what was written before stays.
  Status Append(std::string_view bytes);
  // Free bytes for us on the part's file system; UINT64_MAX: unknown.
  uint64_t FreeBytes() const;
  // Flushed to the disk, then renamed. Replaces a finished file.
  Status Finish(const DownloadRecord& record);
  // Removes the part and its record.
  void Discard();

 private:
  const std::string path_;
  const std::string folder_;
  int lock_ = -1;
  int part_ = -1;
};

// A file's SHA-256 in lower-case hexadecimal. `progress` gets the bytes read so far; kCancelled
// when it returns false.
StatusOr<std::string> Sha256OfFile(const std::string& path,
                                   const std::function<bool(uint64_t)>& progress);

// The first `count` bytes of a file, or fewer when it is shorter.
StatusOr<std::string> ReadStart(const std::string& path, size_t count);

// The file in `folder` that is a copy of `url`, finished or in part, by its record: a name.
std::optional<std::string> FindDownload(const std::string& folder, std::string_view url);

}  // namespace kvasir

#endif  // KVASIR_IO_DOWNLOAD_TARGET_H_
