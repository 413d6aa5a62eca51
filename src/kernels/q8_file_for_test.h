// Rows of Q8_0 blocks in file form, made from any floats: the same bytes that a quantizer writes,
// scale = amax / 127 as half precision. For tests.
#ifndef KVASIR_KERNELS_Q8_FILE_FOR_TEST_H_
#define KVASIR_KERNELS_Q8_FILE_FOR_TEST_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/row_ops.h"

namespace kvasir {

// REQUIRES: values.size() is a multiple of 32.
inline std::vector<std::byte> Q8FileOf(const std::vector<float>& values) {
  std::vector<std::byte> file;
  for (size_t b = 0; b < values.size(); b += 32) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[b + i]));
    const uint16_t half = HalfFromFloat(largest / 127);
    const float scale = FloatFromHalf(half);
    std::byte block[34];
    std::memcpy(block, &half, 2);
    for (size_t i = 0; i < 32; ++i) {
      const float code = scale == 0 ? 0 : std::round(values[b + i] / scale);
      block[2 + i] =
          static_cast<std::byte>(static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, code))));
    }
    file.insert(file.end(), block, block + 34);
  }
  return file;
}

}  // namespace kvasir

#endif  // KVASIR_KERNELS_Q8_FILE_FOR_TEST_H_
