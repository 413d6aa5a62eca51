// MappedParts: a model file, or all parts of one that was split, mapped read-only.
//
// Parts are told by their names, NAME-00001-of-00003.gguf and so on: whoever names one of them
// means all, which lie in one folder. What is in them is not looked at: GgufFile::ParseParts finds
// out whether they belong together. Thread: as MappedFile.
#ifndef KVASIR_IO_MAPPED_PARTS_H_
#define KVASIR_IO_MAPPED_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/mapped_file.h"

namespace kvasir {

inline constexpr uint32_t kMaxFileParts = 1024;

// What a name says of the part: `stem` is all before "-00001-of-00003.gguf".
struct PartName {
  std::string stem;
  uint32_t number = 0;  // From 1.
  uint32_t count = 0;
};
std::optional<PartName> ReadPartName(std::string_view path);
// The name of another part of the same model. REQUIRES: 1 <= number <= count.
std::string NameOfPart(const PartName& name, uint32_t number);

class MappedParts {
 public:
  // MappedFile::Open's errors; of a part other than `path` they say which it is. kInvalidArgument
  // for more than kMaxFileParts.
  static StatusOr<MappedParts> Open(const std::string& path);

  MappedParts() = default;
  // In order; one for a file that is not split.
  std::span<const std::span<const std::byte>> parts() const { return parts_; }
  const std::vector<MappedFile>& files() const { return files_; }

  // As MappedFile::ReleasePages. REQUIRES: range lies in one of the parts.
  void ReleasePages(std::span<const std::byte> range) const;

 private:
  std::vector<MappedFile> files_;
  std::vector<std::span<const std::byte>> parts_;
};

}  // namespace kvasir

#endif  // KVASIR_IO_MAPPED_PARTS_H_
