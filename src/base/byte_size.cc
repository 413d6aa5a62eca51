#include "base/byte_size.h"

#include <fmt/format.h>

#include "base/counted.h"

namespace kvasir {

std::string SizeForAtLeast(uint64_t bytes) {
  constexpr uint64_t kK = 1024, kM = kK * kK;
  const bool large = bytes >= 64 * kM;
  const uint64_t unit = large ? kM : kK;
  return fmt::format("{}{}", bytes / unit + (bytes % unit != 0), large ? 'M' : 'K');
}

std::string ShownBytes(uint64_t bytes) {
  constexpr uint64_t kK = 1024, kM = kK * kK;
  if (bytes < kK) return Counted(bytes, "byte");
  const uint64_t unit = bytes < kM ? kK : kM;
  const uint64_t whole = bytes / unit;
  const uint64_t tenths = bytes % unit * 10 / unit;
  const std::string_view name = bytes < kM ? "KiB" : "MiB";
  if (whole >= 10 || tenths == 0) return fmt::format("{} {}", whole, name);
  return fmt::format("{}.{} {}", whole, tenths, name);
}

}  // namespace kvasir
