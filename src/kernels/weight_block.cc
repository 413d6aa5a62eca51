#include "kernels/weight_block.h"

#include "base/check.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

constexpr uint32_t kSuperBlocks = 8;  // 32-blocks in the 256 values of a K-quant.

uint16_t ReadU16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

// The nibble order of Q4_0, Q4_1 and Q5_0: values 0..15 low, 16..31 high.
void ReadNibbles(const uint8_t* nibbles, uint8_t* q) {
  for (uint32_t i = 0; i < 16; ++i) {
    q[i] = nibbles[i] & 15;
    q[i + 16] = nibbles[i] >> 4;
  }
}

// Super-block: d, dmin, 12 bytes of packed 6-bit scales and minima, 128 bytes of nibbles in runs of
// 32 bytes; a run holds two 32-blocks, low then high.
void ReadQ4K(const uint8_t* super, uint32_t part, WeightBlock* block) {
  block->d = ReadU16(super);
  block->m = ReadU16(super + 2);
  const uint8_t* packed = super + 4;
  if (part < 4) {
    block->sub[0] = packed[part] & 63;
    block->sub[1] = packed[part + 4] & 63;
  } else {
    block->sub[0] = static_cast<uint8_t>((packed[part + 4] & 15) | (packed[part - 4] >> 6 << 4));
    block->sub[1] = static_cast<uint8_t>((packed[part + 4] >> 4) | (packed[part] >> 6 << 4));
  }
  const uint8_t* run = super + 16 + part / 2 * 32;
  const int shift = part % 2 == 0 ? 0 : 4;
  for (uint32_t i = 0; i < kBlockValues; ++i) block->q[i] = (run[i] >> shift) & 15;
}

// Super-block: 128 bytes of low nibbles, 64 of 2-bit tops, 16 int8 scales, d. Each half of 128
// values has 64 bytes of nibbles (two 32-blocks low, then two high) and 32 of tops (2 bits a
// block).
void ReadQ6K(const uint8_t* super, uint32_t part, WeightBlock* block) {
  const uint32_t half = part / 4;
  const uint32_t quarter = part % 4;
  const uint8_t* low = super + half * 64 + quarter % 2 * 32;
  const uint8_t* top = super + 128 + half * 32;
  const int low_shift = quarter < 2 ? 0 : 4;
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    const int high = (top[i] >> (2 * quarter)) & 3;
    block->q[i] = static_cast<uint8_t>(((low[i] >> low_shift) & 15) | high << 4);
  }
  block->sub[0] = super[192 + part * 2];
  block->sub[1] = super[192 + part * 2 + 1];
  block->d = ReadU16(super + 208);
}

}  // namespace

bool IsQuantized(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16;
}

int ZeroPoint(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return 8;
    case WeightFormat::kQ5_0:
      return 16;
    case WeightFormat::kQ6_K:
      return 32;
    case WeightFormat::kQ8_0:
      return 128;
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ4_K:
      break;
  }
  return 0;
}

WeightBlock ReadFileBlock(WeightFormat format, const std::byte* file_row, uint32_t block) {
  const WeightFormatTraits& traits = TraitsOf(format);
  const bool is_super = traits.block_values == kSuperBlocks * kBlockValues;
  const uint8_t* p = reinterpret_cast<const uint8_t*>(file_row) +
                     size_t{is_super ? block / kSuperBlocks : block} * traits.block_bytes;
  WeightBlock out = {};
  switch (format) {
    case WeightFormat::kQ4_0:
      out.d = ReadU16(p);
      ReadNibbles(p + 2, out.q);
      break;
    case WeightFormat::kQ4_1:
      out.d = ReadU16(p);
      out.m = ReadU16(p + 2);
      ReadNibbles(p + 4, out.q);
      break;
    case WeightFormat::kQ5_0: {
      out.d = ReadU16(p);
      ReadNibbles(p + 6, out.q);
      const uint32_t top = uint32_t{ReadU16(p + 2)} | uint32_t{ReadU16(p + 4)} << 16;
      for (uint32_t i = 0; i < kBlockValues; ++i) {
        out.q[i] = static_cast<uint8_t>(out.q[i] | ((top >> i) & 1) << 4);
      }
      break;
    }
    case WeightFormat::kQ8_0:
      out.d = ReadU16(p);
      for (uint32_t i = 0; i < kBlockValues; ++i) out.q[i] = p[2 + i] ^ 0x80;
      break;
    case WeightFormat::kQ4_K:
      ReadQ4K(p, block % kSuperBlocks, &out);
      break;
    case WeightFormat::kQ6_K:
      ReadQ6K(p, block % kSuperBlocks, &out);
      break;
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      KV_CHECK(IsQuantized(format));
  }
  return out;
}

BlockScales ScalesOf(WeightFormat format, const WeightBlock& block) {
  const float d = FloatFromHalf(block.d);
  switch (format) {
    case WeightFormat::kQ4_1:
      return {{d, d}, FloatFromHalf(block.m)};
    case WeightFormat::kQ4_K: {
      // 11 by 6 bits of mantissa: both products are exact.
      const float scale = d * static_cast<float>(block.sub[0]);
      return {{scale, scale}, -(FloatFromHalf(block.m) * static_cast<float>(block.sub[1]))};
    }
    case WeightFormat::kQ6_K:
      return {{d * static_cast<float>(static_cast<int8_t>(block.sub[0])),
               d * static_cast<float>(static_cast<int8_t>(block.sub[1]))},
              0.0f};
    case WeightFormat::kQ4_0:
    case WeightFormat::kQ5_0:
    case WeightFormat::kQ8_0:
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      break;
  }
  return {{d, d}, 0.0f};
}

void DequantizeBlock(WeightFormat format, const WeightBlock& block, float* out) {
  const BlockScales scales = ScalesOf(format, block);
  const int zero = ZeroPoint(format);
  const bool has_min = format == WeightFormat::kQ4_1 || format == WeightFormat::kQ4_K;
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    const float q = static_cast<float>(int{block.q[i]} - zero);
    const float product = scales.scale[i / 16] * q;
    // Adding a zero minimum would turn -0 into +0.
    out[i] = has_min ? product + scales.min : product;
  }
}

}  // namespace kvasir
