#include "kernels/stored_kv.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/row_ops.h"
#include "kernels/row_ops_table.h"

namespace kvasir {
namespace {

constexpr size_t kHalfBytes = 2;
constexpr float kRoundShift = 0x1.8p+23f;  // Adding it rounds to an integer, kept in the low bits.

int32_t RoundedBits(float x) {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(x + kRoundShift) -
                              std::bit_cast<uint32_t>(kRoundShift));
}

// The f16 nearest to x, but finite where x is; NaN for what is not.
uint16_t FiniteHalf(float x) {
  if (!(std::abs(x) <= std::numeric_limits<float>::max())) return 0x7E00;
  return HalfFromFloat(std::clamp(x, -65504.0f, 65504.0f));
}

float InverseOf(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

uint16_t LoadU16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
void StoreU16(std::byte* at, uint16_t value) { std::memcpy(at, &value, sizeof(value)); }
float LoadHalf(const std::byte* at) { return FloatFromHalf(LoadU16(at)); }

// One group of a token: codes 1..255 around 128, and the scale.
uint16_t QuantizeInt8(std::span<const float> x, uint8_t* code) {
  float largest = 0.0f;
  bool finite = true;
  for (const float value : x) {
    const float magnitude = std::abs(value);
    finite &= magnitude <= std::numeric_limits<float>::max();
    largest = std::max(largest, magnitude);
  }
  const uint16_t half =
      FiniteHalf(finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN());
  const float inverse = finite ? InverseOf(FloatFromHalf(half)) : 0.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    const int32_t rounded = finite ? RoundedBits(std::clamp(x[i] * inverse, -127.0f, 127.0f)) : 0;
    code[i] = static_cast<uint8_t>(rounded + 128);
  }
  return half;
}

struct Range4 {
  uint16_t scale;
  uint16_t minimum;
};

// Codes 0..15 and what they mean; `stride` between values.
Range4 QuantizeInt4(const float* x, size_t count, uint8_t* code) {
  float low = std::numeric_limits<float>::max();
  float high = -std::numeric_limits<float>::max();
  bool finite = true;
  for (size_t i = 0; i < count; ++i) {
    finite &= std::abs(x[i]) <= std::numeric_limits<float>::max();
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  if (!finite) {
    std::fill_n(code, count, uint8_t{0});
    return {0x7E00, 0x7E00};
  }
  const uint16_t minimum = FiniteHalf(low);
  const float base = FloatFromHalf(minimum);
  const uint16_t scale = FiniteHalf(std::max(high - base, 0.0f) / 15.0f);
  const float inverse = InverseOf(FloatFromHalf(scale));
  for (size_t i = 0; i < count; ++i) {
    code[i] = static_cast<uint8_t>(RoundedBits(std::clamp((x[i] - base) * inverse, 0.0f, 15.0f)));
  }
  return {scale, minimum};
}

uint32_t GroupWidth(uint32_t head_dim, uint32_t group) {
  return std::min(kScaleGroup, head_dim - group * kScaleGroup);
}

void CheckPlace(size_t head_dim, uint32_t place) {
  KV_CHECK_LE(head_dim, size_t{kMaxHeadDim});
  KV_CHECK_EQ(head_dim % 16, 0u);
  KV_CHECK_LT(place, kUnitTokens);
}

// Codes of one token, group by group; scales (and minimums) go to their vectors of 16 tokens.
void WriteTokenScales(StoredType type, std::span<const float> x, std::byte* unit, uint32_t place,
                      uint8_t* code) {
  const uint32_t head_dim = static_cast<uint32_t>(x.size());
  const uint32_t groups = ScaleGroups(head_dim);
  std::byte* const scales = unit + ValueBytes(type, head_dim) + place * kHalfBytes;
  for (uint32_t group = 0; group < groups; ++group) {
    const uint32_t first = group * kScaleGroup;
    const std::span<const float> values = x.subspan(first, GroupWidth(head_dim, group));
    std::byte* const scale = scales + size_t{group} * kUnitTokens * kHalfBytes;
    if (type == StoredType::kInt8) {
      StoreU16(scale, QuantizeInt8(values, code + first));
    } else {
      const Range4 range = QuantizeInt4(values.data(), values.size(), code + first);
      StoreU16(scale, range.scale);
      StoreU16(scale + size_t{groups} * kUnitTokens * kHalfBytes, range.minimum);
    }
  }
}

}  // namespace

size_t ValueBytes(StoredType type, uint32_t head_dim) {
  const size_t values = size_t{kUnitTokens} * head_dim;
  switch (type) {
    case StoredType::kF16:
      return values * kHalfBytes;
    case StoredType::kInt8:
      return values;
    case StoredType::kInt4:
      return values / 2;
  }
  KV_CHECK(false);
  return 0;
}

size_t KUnitBytes(StoredType type, uint32_t head_dim) {
  const size_t values = ValueBytes(type, head_dim);
  if (type == StoredType::kF16) return values;
  if (type == StoredType::kInt4) return values + 2 * head_dim * kHalfBytes;
  return values + size_t{ScaleGroups(head_dim)} * kUnitTokens * kHalfBytes;
}

size_t VUnitBytes(StoredType type, uint32_t head_dim) {
  const size_t values = ValueBytes(type, head_dim);
  if (type == StoredType::kF16) return values;
  const size_t numbers = type == StoredType::kInt4 ? 2 : 1;
  return values + numbers * ScaleGroups(head_dim) * kUnitTokens * kHalfBytes;
}

void WriteK(StoredType type, std::span<const float> k, std::byte* unit, uint32_t place) {
  CheckPlace(k.size(), place);
  KV_CHECK(!IsStaged(type));
  if (type == StoredType::kF16) {
    uint16_t half[kMaxHeadDim];
    ActiveRowOps().half_from_float(k.data(), half, k.size());
    uint16_t* const to = reinterpret_cast<uint16_t*>(unit);
    for (size_t d = 0; d < k.size(); ++d) to[d * kUnitTokens + place] = half[d];
    return;
  }
  uint8_t code[kMaxHeadDim];
  WriteTokenScales(type, k, unit, place, code);
  for (size_t d = 0; d < k.size(); d += 4) {
    std::memcpy(unit + d * kUnitTokens + place * 4, code + d, 4);
  }
}

void WriteV(StoredType type, std::span<const float> v, std::byte* unit, uint32_t place) {
  CheckPlace(v.size(), place);
  const size_t head_dim = v.size();
  if (type == StoredType::kF16) {
    uint16_t* const to = reinterpret_cast<uint16_t*>(unit) + place * head_dim;
    ActiveRowOps().half_from_float(v.data(), to, head_dim);
    return;
  }
  uint8_t code[kMaxHeadDim];
  WriteTokenScales(type, v, unit, place, code);
  auto* const bytes = reinterpret_cast<uint8_t*>(unit);
  if (type == StoredType::kInt8) {
    uint8_t* const to = bytes + place / 4 * head_dim * 4 + place % 4;
    for (size_t d = 0; d < head_dim; ++d) to[d * 4] = code[d];
    return;
  }
  uint8_t* const to = bytes + place / 8 * head_dim * 4 + place % 4;
  const uint32_t shift = place % 8 < 4 ? 0 : 4;
  const uint8_t keep = static_cast<uint8_t>(0xF0 >> shift);
  for (size_t d = 0; d < head_dim; ++d) {
    to[d * 4] = static_cast<uint8_t>((to[d * 4] & keep) | code[d] << shift);
  }
}

void QuantizeKUnit(StoredType type, uint32_t head_dim, const std::byte* f16_unit, std::byte* unit) {
  KV_CHECK(IsStaged(type));
  CheckPlace(head_dim, 0);
  float channel[kUnitTokens];
  uint8_t code[kUnitTokens];
  auto* const bytes = reinterpret_cast<uint8_t*>(unit);
  std::byte* const scales = unit + ValueBytes(type, head_dim);
  for (uint32_t d = 0; d < head_dim; ++d) {
    const auto* half = reinterpret_cast<const uint16_t*>(f16_unit) + size_t{d} * kUnitTokens;
    ActiveRowOps().float_from_half(half, channel, kUnitTokens);
    const Range4 range = QuantizeInt4(channel, kUnitTokens, code);
    StoreU16(scales + d * kHalfBytes, range.scale);
    StoreU16(scales + (head_dim + d) * kHalfBytes, range.minimum);
    uint8_t* const to = bytes + d / 8 * 64 + d % 4;
    if (d % 8 < 4) {
      for (uint32_t t = 0; t < kUnitTokens; ++t) to[t * 4] = code[t];
    } else {
      for (uint32_t t = 0; t < kUnitTokens; ++t) {
        to[t * 4] = static_cast<uint8_t>(to[t * 4] | code[t] << 4);
      }
    }
  }
}

namespace {

uint32_t NibbleOf(std::byte byte, bool high) {
  return (static_cast<uint32_t>(byte) >> (high ? 4 : 0)) & 15u;
}

float TokenValue(StoredType type, uint32_t head_dim, const std::byte* unit, uint32_t place,
                 uint32_t channel, uint32_t code) {
  const size_t at = size_t{channel / kScaleGroup} * kUnitTokens + place;
  const std::byte* const scale = unit + ValueBytes(type, head_dim) + at * kHalfBytes;
  if (type == StoredType::kInt8) {
    return LoadHalf(scale) * static_cast<float>(static_cast<int32_t>(code) - 128);
  }
  const size_t plane = size_t{ScaleGroups(head_dim)} * kUnitTokens * kHalfBytes;
  return std::fma(static_cast<float>(code), LoadHalf(scale), LoadHalf(scale + plane));
}

}  // namespace

float StoredK(StoredType type, uint32_t head_dim, const std::byte* unit, uint32_t place,
              uint32_t channel) {
  switch (type) {
    case StoredType::kF16:
      return LoadHalf(unit + (size_t{channel} * kUnitTokens + place) * kHalfBytes);
    case StoredType::kInt8: {
      const std::byte code = unit[channel / 4 * 64 + place * 4 + channel % 4];
      return TokenValue(type, head_dim, unit, place, channel, static_cast<uint32_t>(code));
    }
    case StoredType::kInt4: {
      const std::byte byte = unit[channel / 8 * 64 + place * 4 + channel % 4];
      const std::byte* const scale = unit + ValueBytes(type, head_dim) + channel * kHalfBytes;
      return std::fma(static_cast<float>(NibbleOf(byte, channel % 8 >= 4)), LoadHalf(scale),
                      LoadHalf(scale + head_dim * kHalfBytes));
    }
  }
  return 0.0f;
}

float StoredV(StoredType type, uint32_t head_dim, const std::byte* unit, uint32_t place,
              uint32_t channel) {
  switch (type) {
    case StoredType::kF16:
      return LoadHalf(unit + (size_t{place} * head_dim + channel) * kHalfBytes);
    case StoredType::kInt8: {
      const std::byte code = unit[size_t{place / 4} * head_dim * 4 + channel * 4 + place % 4];
      return TokenValue(type, head_dim, unit, place, channel, static_cast<uint32_t>(code));
    }
    case StoredType::kInt4: {
      const std::byte byte = unit[size_t{place / 8} * head_dim * 4 + channel * 4 + place % 4];
      return TokenValue(type, head_dim, unit, place, channel, NibbleOf(byte, place % 8 >= 4));
    }
  }
  return 0.0f;
}

}  // namespace kvasir
