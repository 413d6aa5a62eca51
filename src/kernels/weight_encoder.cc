#include "kernels/weight_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/row_ops.h"
#include "kernels/weight_block.h"
#include "kernels/weight_search.h"

namespace kvasir {
namespace {

constexpr int kValues = static_cast<int>(kBlockValues);

void PutHalf(float value, uint8_t* out) {
  const uint16_t bits = HalfFromFloat(value);
  std::memcpy(out, &bits, 2);
}

float Inverse(float d) { return d == 0.0f ? 0.0f : 1.0f / d; }

uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// The value of the largest magnitude, the first of equals.
float Extreme(const float* x) {
  float extreme = x[0];
  for (int i = 1; i < kValues; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  return extreme;
}

// Values 0..15 in the low nibbles, 16..31 in the high ones.
void PutNibbles(const uint8_t* q, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<uint8_t>((q[i] & 15) | (q[16 + i] & 15) << 4);
  }
}

// The extreme gets the lowest code, -2^(bits - 1): of all codes the one farthest from zero.
void SymmetricCodes(const float* x, int zero, float* d, uint8_t* q) {
  *d = Extreme(x) / static_cast<float>(-zero);
  const float inverse = Inverse(*d);
  const float offset = static_cast<float>(zero) + 0.5f;
  for (int i = 0; i < kValues; ++i) {
    q[i] = static_cast<uint8_t>(std::min(static_cast<int>(x[i] * inverse + offset), 2 * zero - 1));
  }
}

void EncodeQ40(const float* x, uint8_t* out) {
  uint8_t q[kValues];
  float d = 0.0f;
  SymmetricCodes(x, 8, &d, q);
  PutHalf(d, out);
  PutNibbles(q, out + 2);
}

void EncodeQ50(const float* x, uint8_t* out) {
  uint8_t q[kValues];
  float d = 0.0f;
  SymmetricCodes(x, 16, &d, q);
  PutHalf(d, out);
  uint32_t top = 0;
  for (int i = 0; i < kValues; ++i) top |= static_cast<uint32_t>(q[i] >> 4) << i;
  std::memcpy(out + 2, &top, 4);
  PutNibbles(q, out + 6);
}

void EncodeQ41(const float* x, uint8_t* out) {
  const auto [low, high] = std::minmax_element(x, x + kValues);
  const float d = (*high - *low) / 15.0f;
  const float inverse = Inverse(d);
  uint8_t q[kValues];
  for (int i = 0; i < kValues; ++i) {
    q[i] = static_cast<uint8_t>(std::min(static_cast<int>((x[i] - *low) * inverse + 0.5f), 15));
  }
  PutHalf(d, out);
  PutHalf(*low, out + 2);
  PutNibbles(q, out + 4);
}

void EncodeQ80(const float* x, uint8_t* out) {
  const float d = std::fabs(Extreme(x)) / 127.0f;
  const float inverse = Inverse(d);
  PutHalf(d, out);
  for (int i = 0; i < kValues; ++i) {
    out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * inverse)));
  }
}

// Super-block: d, dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles
// (weight_block.cc).
void EncodeQ4K(const float* x, uint8_t* out) {
  RangeGrid grid[8];
  uint8_t q[256] = {};
  const RangeSuper super = SearchRanges(x, 15, grid, q);
  std::memcpy(out, &super.d, 2);
  std::memcpy(out + 2, &super.m, 2);
  uint8_t* packed = out + 4;
  std::memset(packed, 0, 12);
  for (int b = 0; b < 8; ++b) {
    const int scale = grid[b].scale;
    const int min = grid[b].min;
    if (b < 4) {
      packed[b] = static_cast<uint8_t>(packed[b] | scale);
      packed[b + 4] = static_cast<uint8_t>(packed[b + 4] | min);
    } else {
      packed[b + 4] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
      packed[b - 4] = static_cast<uint8_t>(packed[b - 4] | scale >> 4 << 6);
      packed[b] = static_cast<uint8_t>(packed[b] | min >> 4 << 6);
    }
  }
  for (int run = 0; run < 4; ++run) {
    for (int i = 0; i < 32; ++i) {
      out[16 + 32 * run + i] = static_cast<uint8_t>(q[64 * run + i] | q[64 * run + 32 + i] << 4);
    }
  }
}

// Super-block: 128 bytes of low nibbles, 64 of 2-bit tops, 16 int8 scales, d (weight_block.cc).
void EncodeQ6K(const float* x, uint8_t* out) {
  int8_t scales[16] = {};
  uint8_t q[256] = {};
  const uint16_t d = SearchScales(x, 32, scales, q);
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      const uint8_t* at = q + 128 * half + i;
      uint8_t* low = out + 64 * half + i;
      low[0] = static_cast<uint8_t>((at[0] & 15) | (at[64] & 15) << 4);
      low[32] = static_cast<uint8_t>((at[32] & 15) | (at[96] & 15) << 4);
      out[128 + 32 * half + i] =
          static_cast<uint8_t>(at[0] >> 4 | at[32] >> 4 << 2 | at[64] >> 4 << 4 | at[96] >> 4 << 6);
    }
  }
  std::memcpy(out + 192, scales, 16);
  std::memcpy(out + 208, &d, 2);
}

using BlockEncoder = void (*)(const float* x, uint8_t* out);

BlockEncoder EncoderOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return EncodeQ40;
    case WeightFormat::kQ4_1:
      return EncodeQ41;
    case WeightFormat::kQ5_0:
      return EncodeQ50;
    case WeightFormat::kQ8_0:
      return EncodeQ80;
    case WeightFormat::kQ4_K:
      return EncodeQ4K;
    case WeightFormat::kQ6_K:
      return EncodeQ6K;
    default:
      return nullptr;
  }
}

}  // namespace

bool CanEncode(WeightFormat format) { return !IsQuantized(format) || EncoderOf(format) != nullptr; }

void EncodeRow(WeightFormat format, std::span<const float> values, std::span<std::byte> out) {
  KV_CHECK(CanEncode(format));
  KV_CHECK_EQ(out.size(), FileRowBytes(format, static_cast<uint32_t>(values.size())));
  if (format == WeightFormat::kF32) {
    std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  uint8_t* to = reinterpret_cast<uint8_t*>(out.data());
  if (!IsQuantized(format)) {
    for (const float value : values) {
      const uint16_t bits =
          format == WeightFormat::kF16 ? HalfFromFloat(value) : Bf16FromFloat(value);
      std::memcpy(to, &bits, 2);
      to += 2;
    }
    return;
  }
  const WeightFormatTraits& traits = TraitsOf(format);
  const BlockEncoder encode = EncoderOf(format);
  for (size_t i = 0; i < values.size(); i += traits.block_values, to += traits.block_bytes) {
    encode(&values[i], to);
  }
}

}  // namespace kvasir
