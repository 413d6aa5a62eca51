#include "io/download_target.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/check.h"
#include "io/descriptor.h"

namespace kvasir {
namespace {

constexpr size_t kMaxRecordBytes = 64 << 10;
constexpr std::string_view kOrigin = ".origin";
constexpr std::string_view kPartOrigin = ".part.origin";

Status Trouble(std::string_view what, const std::string& path, int error) {
  StatusCode code = StatusCode::kInternal;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = StatusCode::kResourceExhausted;
  if (error == EACCES || error == EPERM || error == EROFS) code = StatusCode::kPermissionDenied;
  return MakeStatus(code, fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Trouble("cannot write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return OkStatus();
}

Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) return Trouble("cannot rename", from, errno);
  return OkStatus();
}

Status SyncFolder(const std::string& folder) {
  const Descriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems know no such thing; their renames then last when they last.
  if (fd.get() >= 0 && fsync(fd.get()) != 0 && errno != EINVAL) {
    return Trouble("cannot flush", folder, errno);
  }
  return OkStatus();
}

Status ReplaceFile(const std::string& path, std::string_view text) {
  const std::string fresh = path + ".new";
  {
    const Descriptor fd(
        open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (fd.get() < 0) return Trouble("cannot create", fresh, errno);
    KV_RETURN_IF_ERROR(WriteAll(fd.get(), text, fresh));
    if (fsync(fd.get()) != 0) return Trouble("cannot flush", fresh, errno);
  }
  return Rename(fresh, path);
}

std::optional<DownloadRecord> ReadRecord(const std::string& path) {
  const StatusOr<std::string> text = ReadStart(path, kMaxRecordBytes);
  return text.ok() ? DownloadRecord::FromText(*text) : std::nullopt;
}

}  // namespace

DownloadTarget::~DownloadTarget() {
  struct stat status = {};
  if (part_ >= 0 && fstat(part_, &status) == 0 && status.st_size == 0) Discard();
  if (part_ >= 0) close(part_);
  if (lock_ < 0) return;
  unlink((path_ + ".lock").c_str());  // While it is held: see TryLock.
  close(lock_);
}

StatusOr<bool> DownloadTarget::TryLock() {
  KV_CHECK_LT(lock_, 0);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return Trouble("cannot create the folder", folder_, error.value());
  const std::string path = path_ + ".lock";
  while (true) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return Trouble("cannot create", path, errno);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int why = errno;
      close(fd);
      if (why == EWOULDBLOCK) return false;
      return Trouble("cannot lock", path, why);
    }
    // The last holder may have removed the file between open and flock: then this locks nothing
    // that others see.
    struct stat ours = {};
    struct stat there = {};
    if (fstat(fd, &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
        ours.st_dev == there.st_dev) {
      lock_ = fd;
      return true;
    }
    close(fd);
  }
}

std::optional<uint64_t> DownloadTarget::FinishedBytes() const {
  struct stat status = {};
  if (stat(path_.c_str(), &status) != 0) return {};
  return static_cast<uint64_t>(status.st_size);
}

std::optional<DownloadRecord> DownloadTarget::FinishedRecord() const {
  return ReadRecord(path_ + std::string(kOrigin));
}

std::optional<DownloadRecord> DownloadTarget::PartRecord() const {
  return ReadRecord(path_ + std::string(kPartOrigin));
}

StatusOr<uint64_t> DownloadTarget::OpenPart() {
  const std::string path = path_ + ".part";
  if (part_ < 0 && access(path.c_str(), F_OK) != 0) {
    // Cut off between the two renames of Finish: the record follows its file.
    const std::optional<DownloadRecord> record = PartRecord();
    const std::optional<uint64_t> bytes = FinishedBytes();
    if (record.has_value() && bytes.has_value() && record->length == bytes) {
      KV_RETURN_IF_ERROR(Rename(path_ + std::string(kPartOrigin), path_ + std::string(kOrigin)));
    }
  }
  if (part_ < 0) part_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (part_ < 0) return Trouble("cannot open", path, errno);
  struct stat status = {};
  if (fstat(part_, &status) != 0) return Trouble("cannot stat", path, errno);
  if (!S_ISREG(status.st_mode)) return InvalidArgument("{}: is not a regular file", path);
  if (lseek(part_, 0, SEEK_END) < 0) return Trouble("cannot seek", path, errno);
  return static_cast<uint64_t>(status.st_size);
}

Status DownloadTarget::Begin(const DownloadRecord& record, uint64_t keep_bytes) {
  KV_CHECK_GE(part_, 0);
  const std::string path = path_ + ".part";
  if (ftruncate(part_, static_cast<off_t>(keep_bytes)) != 0) {
    return Trouble("cannot shorten", path, errno);
  }
  if (lseek(part_, 0, SEEK_END) < 0) return Trouble("cannot seek", path, errno);
  const std::optional<DownloadRecord> before = PartRecord();
  if (before.has_value() && before->ToText() == record.ToText()) return OkStatus();
  return ReplaceFile(path_ + std::string(kPartOrigin), record.ToText());
}

Status DownloadTarget::Append(std::string_view bytes) {
  KV_CHECK_GE(part_, 0);
  return WriteAll(part_, bytes, path_ + ".part");
}

uint64_t DownloadTarget::FreeBytes() const {
  struct statvfs space = {};
  if (part_ < 0 || fstatvfs(part_, &space) != 0 || space.f_blocks == 0) return UINT64_MAX;
  return uint64_t{space.f_bavail} * space.f_frsize;
}

Status DownloadTarget::Finish(const DownloadRecord& record) {
  KV_CHECK_GE(part_, 0);
  const std::string part_origin = path_ + std::string(kPartOrigin);
  const std::string origin = path_ + std::string(kOrigin);
  if (fsync(part_) != 0) return Trouble("cannot flush", path_ + ".part", errno);
  KV_RETURN_IF_ERROR(ReplaceFile(part_origin, record.ToText()));
  unlink(origin.c_str());  // It would speak of a file that is no more.
  KV_RETURN_IF_ERROR(Rename(path_ + ".part", path_));
  KV_RETURN_IF_ERROR(Rename(part_origin, origin));
  close(part_);
  part_ = -1;
  return SyncFolder(folder_);
}

void DownloadTarget::Discard() {
  if (part_ >= 0) close(part_);
  part_ = -1;
  unlink((path_ + ".part").c_str());
  unlink((path_ + std::string(kPartOrigin)).c_str());
}

StatusOr<std::string> Sha256OfFile(const std::string& path,
                                   const std::function<bool(uint64_t)>& progress) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return Trouble("cannot open", path, errno);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  KV_CHECK(context != nullptr);
  KV_CHECK_EQ(EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr), 1);
  std::vector<char> buffer(1 << 20);
  uint64_t bytes = 0;
  while (true) {
    const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Trouble("cannot read", path, errno);
    if (got == 0) break;
    KV_CHECK_EQ(EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(got)), 1);
    bytes += static_cast<uint64_t>(got);
    if (!progress(bytes)) return MakeStatus(StatusCode::kCancelled, path + ": stopped");
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  KV_CHECK_EQ(EVP_DigestFinal_ex(context.get(), digest, &size), 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

StatusOr<std::string> ReadStart(const std::string& path, size_t count) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return Trouble("cannot open", path, errno);
  std::string bytes(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    const ssize_t got = read(fd.get(), bytes.data() + filled, count - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Trouble("cannot read", path, errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

std::optional<std::string> FindDownload(const std::string& folder, std::string_view url) {
  std::optional<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    for (const std::string_view ending : {kPartOrigin, kOrigin}) {
      if (name.size() <= ending.size() ||
          name.compare(name.size() - ending.size(), ending.size(), ending) != 0) {
        continue;
      }
      const std::optional<DownloadRecord> record = ReadRecord(it->path().string());
      if (!record.has_value() || record->url != url) break;
      name.resize(name.size() - ending.size());
      // The order of a folder is no order: the least name is the same every time.
      if (!found.has_value() || name < *found) found = name;
      break;
    }
  }
  return found;
}

}  // namespace kvasir
