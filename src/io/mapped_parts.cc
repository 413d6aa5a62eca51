#include "io/mapped_parts.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr std::string_view kSuffix = "-00000-of-00000.gguf";
constexpr size_t kDigits = 5;

// Five digits at `at`; nullopt if there is anything else.
std::optional<uint32_t> ReadDigits(std::string_view text, size_t at) {
  uint32_t number = 0;
  for (const char c : text.substr(at, kDigits)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  return number;
}

bool Holds(const MappedFile& file, std::span<const std::byte> range) {
  const std::span<const std::byte> bytes = file.bytes();
  return !std::less<>()(range.data(), bytes.data()) &&
         std::less<>()(range.data(), bytes.data() + bytes.size());
}

}  // namespace

std::optional<PartName> ReadPartName(std::string_view path) {
  if (path.size() <= kSuffix.size()) return std::nullopt;
  const size_t stem = path.size() - kSuffix.size();
  const std::string_view suffix = path.substr(stem);
  const size_t count_at = kSuffix.rfind("00000");
  if (suffix[0] != '-' || suffix.substr(1 + kDigits, 4) != "-of-" ||
      suffix.substr(count_at + kDigits) != ".gguf") {
    return std::nullopt;
  }
  const std::optional<uint32_t> number = ReadDigits(suffix, 1);
  const std::optional<uint32_t> count = ReadDigits(suffix, count_at);
  if (!number.has_value() || !count.has_value() || *number < 1 || *number > *count) {
    return std::nullopt;
  }
  return PartName{std::string(path.substr(0, stem)), *number, *count};
}

std::string NameOfPart(const PartName& name, uint32_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.stem, number, name.count);
}

StatusOr<MappedParts> MappedParts::Open(const std::string& path) {
  MappedParts opened;
  KV_ASSIGN_OR_RETURN(MappedFile named, MappedFile::Open(path));
  const PartName name = ReadPartName(path).value_or(PartName{"", 1, 1});
  if (name.count > kMaxFileParts) {
    return InvalidArgument("{}: a model of {} parts; at most {} can be opened", path, name.count,
                           kMaxFileParts);
  }
  for (uint32_t number = 1; number <= name.count; ++number) {
    if (number == name.number) {
      opened.files_.push_back(std::move(named));
      continue;
    }
    StatusOr<MappedFile> part = MappedFile::Open(NameOfPart(name, number));
    if (!part.ok()) {
      return WithPrefix(part.status(),
                        fmt::format("{}: part {} of {} is needed too", path, number, name.count));
    }
    opened.files_.push_back(*std::move(part));
  }
  for (const MappedFile& file : opened.files_) opened.parts_.push_back(file.bytes());
  return opened;
}

void MappedParts::ReleasePages(std::span<const std::byte> range) const {
  if (range.empty()) return;
  const auto file = std::find_if(files_.begin(), files_.end(),
                                 [&](const MappedFile& each) { return Holds(each, range); });
  KV_CHECK(file != files_.end());
  file->ReleasePages(range);
}

}  // namespace kvasir
