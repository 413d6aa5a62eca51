#include "base/byte_size.h"

#include <fmt/format.h>

namespace kvasir {

std::string SizeForAtLeast(uint64_t bytes) {
  constexpr uint64_t kK = 1024, kM = kK * kK;
  const bool large = bytes >= 64 * kM;
  const uint64_t unit = large ? kM : kK;
  return fmt::format("{}{}", bytes / unit + (bytes % unit != 0), large ? 'M' : 'K');
}

}  // namespace kvasir
