#include "kernels/head_spread.h"

#include <cstddef>

#include "base/check.h"
#include "kernels/stored_kv.h"

namespace kvasir {
namespace {

// One of log2(kCount) equal steps: sums and differences of the two halves, side by side. After all
// of them every channel is back at its place.
template <size_t kCount>
inline void Butterflies(const float* from, float* to, float factor) {
  for (size_t i = 0; i < kCount / 2; ++i) {
    const float a = from[i];
    const float b = from[i + kCount / 2];
    to[2 * i] = (a + b) * factor;
    to[2 * i + 1] = (a - b) * factor;
  }
}

template <size_t kCount>
void Spread(float* x, float factor) {
  float other[kCount];
  Butterflies<kCount>(x, other, 1.0f);
  Butterflies<kCount>(other, x, 1.0f);
  Butterflies<kCount>(x, other, 1.0f);
  if constexpr (kCount == 16) return Butterflies<kCount>(other, x, factor);
  Butterflies<kCount>(other, x, 1.0f);
  if constexpr (kCount == 32) {
    Butterflies<kCount>(x, other, factor);
    for (size_t i = 0; i < kCount; ++i) x[i] = other[i];
    return;
  }
  Butterflies<kCount>(x, other, 1.0f);
  Butterflies<kCount>(other, x, factor);
}

}  // namespace

void SpreadHead(std::span<float> head) {
  KV_CHECK_EQ(head.size() % 16, 0u);
  static_assert(kScaleGroup == 64);
  float* x = head.data();
  size_t left = head.size();
  for (; left >= 64; left -= 64, x += 64) Spread<64>(x, 0.125f);
  if (left >= 32) {
    Spread<32>(x, 0x1.6a09e6p-3f);
    left -= 32;
    x += 32;
  }
  if (left == 16) Spread<16>(x, 0.25f);
}

}  // namespace kvasir
