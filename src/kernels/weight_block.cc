#include "kernels/weight_block.h"

#include <bit>

#include "base/check.h"
#include "kernels/matmul_layout.h"
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

// Nibbles in the order of ReadNibbles, and bit i of `top` on top of value i.
void ReadFiveBits(const uint8_t* top_bytes, const uint8_t* nibbles, uint8_t* q) {
  ReadNibbles(nibbles, q);
  const uint32_t top = uint32_t{ReadU16(top_bytes)} | uint32_t{ReadU16(top_bytes + 2)} << 16;
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    q[i] = static_cast<uint8_t>(q[i] | ((top >> i) & 1) << 4);
  }
}

// d, dmin and 12 bytes of packed 6-bit scales and minima: the head of Q4_K's and Q5_K's
// super-block.
void ReadSixBitScales(const uint8_t* super, uint32_t part, WeightBlock* block) {
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
}

// 128 bytes of nibbles in runs of 32 bytes; a run holds two 32-blocks, low then high.
void ReadRun(const uint8_t* nibbles, uint32_t part, WeightBlock* block) {
  const uint8_t* run = nibbles + part / 2 * 32;
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

// Super-block: 16 bytes of scales (low nibbles) and minima of 16 values each, 64 bytes of 2-bit
// codes, d, dmin. Each half of 128 values has 32 bytes of codes, 2 bits a 32-block.
void ReadQ2K(const uint8_t* super, uint32_t part, WeightBlock* block) {
  block->d = ReadU16(super + 80);
  block->m = ReadU16(super + 82);
  block->sub[0] = super[2 * part];
  block->sub[1] = super[2 * part + 1];
  const uint8_t* codes = super + 16 + part / 4 * 32;
  for (uint32_t i = 0; i < kBlockValues; ++i) block->q[i] = (codes[i] >> (2 * (part % 4))) & 3;
}

// Super-block: 32 bytes of top bits (bit `part` of byte i for value i), 64 bytes of low bits as in
// Q2_K, 12 bytes of 6-bit scales less 32, d.
void ReadQ3K(const uint8_t* super, uint32_t part, WeightBlock* block) {
  block->d = ReadU16(super + 108);
  const uint8_t* packed = super + 96;  // 8 bytes of low nibbles, 4 of two top bits.
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t scale = 2 * part + i;
    const int low = (packed[scale % 8] >> (scale / 8 * 4)) & 15;
    const int high = (packed[8 + scale % 4] >> (scale / 4 * 2)) & 3;
    block->sub[i] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  const uint8_t* codes = super + 32 + part / 4 * 32;
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    const int low = (codes[i] >> (2 * (part % 4))) & 3;
    block->q[i] = static_cast<uint8_t>(low | ((super[i] >> part) & 1) << 2);
  }
}

// Q4_K's super-block with 32 bytes of top bits (bit `part` of byte i) before the nibbles.
void ReadQ5K(const uint8_t* super, uint32_t part, WeightBlock* block) {
  ReadSixBitScales(super, part, block);
  ReadRun(super + 48, part, block);
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    block->q[i] = static_cast<uint8_t>(block->q[i] | ((super[16 + i] >> part) & 1) << 4);
  }
}

// Super-block: d, 16 bits of tops and 4 bytes of low nibbles of 6-bit scales less 32, then 16 bytes
// of nibbles a 32-block.
void ReadIq4Xs(const uint8_t* super, uint32_t part, WeightBlock* block) {
  block->d = ReadU16(super);
  const int high = (ReadU16(super + 2) >> (2 * part)) & 3;
  const int low = (super[4 + part / 2] >> (part % 2 * 4)) & 15;
  block->sub[0] = static_cast<uint8_t>((low | high << 4) - 32);
  ReadNibbles(super + 8 + 16 * part, block->q);
}

// 2^(exponent - 128), as MXFP4 stores it, in bf16: exact, also the two subnormal ones.
uint16_t Bf16FromExponent(uint8_t exponent) {
  return static_cast<uint16_t>(exponent < 2 ? 0x20 << exponent : (exponent - 1) << 7);
}

// The values of table formats, nullptr for others.
const int8_t* CodeTable(WeightFormat format) {
  switch (format) {
    case WeightFormat::kIQ4_NL:
    case WeightFormat::kIQ4_XS:
      return matmul::kIq4Values;
    case WeightFormat::kMXFP4:
      return matmul::kFp4Values;
    default:
      return nullptr;
  }
}

int ZeroPoint(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ3_K:
      return 4;
    case WeightFormat::kQ4_0:
      return 8;
    case WeightFormat::kQ5_0:
      return 16;
    case WeightFormat::kQ6_K:
      return 32;
    case WeightFormat::kQ8_0:
      return 128;
    default:
      return 0;
  }
}

}  // namespace

bool IsQuantized(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16 &&
         format != WeightFormat::kBF16;
}

bool HasMinimum(WeightFormat format) {
  return matmul::kPanelLayouts[static_cast<size_t>(format)].minima != 0;
}

int CodeValue(WeightFormat format, uint8_t q) {
  const int8_t* table = CodeTable(format);
  return table != nullptr ? table[q] : int{q} - ZeroPoint(format);
}

float FloatFromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

WeightBlock ReadFileBlock(WeightFormat format, const std::byte* file_row, uint32_t block) {
  const WeightFormatTraits& traits = TraitsOf(format);
  const bool is_super = traits.block_values == kSuperBlocks * kBlockValues;
  const uint32_t part = block % kSuperBlocks;
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
    case WeightFormat::kQ5_0:
      out.d = ReadU16(p);
      ReadFiveBits(p + 2, p + 6, out.q);
      break;
    case WeightFormat::kQ5_1:
      out.d = ReadU16(p);
      out.m = ReadU16(p + 2);
      ReadFiveBits(p + 4, p + 8, out.q);
      break;
    case WeightFormat::kQ8_0:
      out.d = ReadU16(p);
      for (uint32_t i = 0; i < kBlockValues; ++i) out.q[i] = p[2 + i] ^ 0x80;
      break;
    case WeightFormat::kQ2_K:
      ReadQ2K(p, part, &out);
      break;
    case WeightFormat::kQ3_K:
      ReadQ3K(p, part, &out);
      break;
    case WeightFormat::kQ4_K:
      ReadSixBitScales(p, part, &out);
      ReadRun(p + 16, part, &out);
      break;
    case WeightFormat::kQ5_K:
      ReadQ5K(p, part, &out);
      break;
    case WeightFormat::kQ6_K:
      ReadQ6K(p, part, &out);
      break;
    case WeightFormat::kIQ4_NL:
      out.d = ReadU16(p);
      ReadNibbles(p + 2, out.q);
      break;
    case WeightFormat::kIQ4_XS:
      ReadIq4Xs(p, part, &out);
      break;
    case WeightFormat::kMXFP4:
      out.d = Bf16FromExponent(p[0]);
      ReadNibbles(p + 1, out.q);
      break;
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      KV_CHECK(IsQuantized(format));
  }
  return out;
}

BlockScales ScalesOf(WeightFormat format, const WeightBlock& block) {
  const float d = FloatFromHalf(block.d);
  const float m = FloatFromHalf(block.m);
  // 11 by at most 8 bits of mantissa: all products are exact.
  switch (format) {
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ5_1:
      return {{d, d}, {m, m}};
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K: {
      const float scale = d * static_cast<float>(block.sub[0]);
      const float min = -(m * static_cast<float>(block.sub[1]));
      return {{scale, scale}, {min, min}};
    }
    case WeightFormat::kQ2_K:
      return {
          {d * static_cast<float>(block.sub[0] & 15), d * static_cast<float>(block.sub[1] & 15)},
          {-(m * static_cast<float>(block.sub[0] >> 4)),
           -(m * static_cast<float>(block.sub[1] >> 4))}};
    case WeightFormat::kQ3_K:
    case WeightFormat::kQ6_K:
      return {{d * static_cast<float>(static_cast<int8_t>(block.sub[0])),
               d * static_cast<float>(static_cast<int8_t>(block.sub[1]))},
              {0.0f, 0.0f}};
    case WeightFormat::kIQ4_XS: {
      const float scale = d * static_cast<float>(static_cast<int8_t>(block.sub[0]));
      return {{scale, scale}, {0.0f, 0.0f}};
    }
    case WeightFormat::kMXFP4: {
      const float scale = FloatFromBf16(block.d);
      return {{scale, scale}, {0.0f, 0.0f}};
    }
    default:
      return {{d, d}, {0.0f, 0.0f}};
  }
}

void DequantizeBlock(WeightFormat format, const WeightBlock& block, float* out) {
  const BlockScales scales = ScalesOf(format, block);
  const int8_t* table = CodeTable(format);
  const int zero = ZeroPoint(format);
  const bool has_min = HasMinimum(format);
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    const int value = table != nullptr ? table[block.q[i]] : int{block.q[i]} - zero;
    const float product = scales.scale[i / 16] * static_cast<float>(value);
    // Adding a zero minimum would turn -0 into +0.
    out[i] = has_min ? product + scales.min[i / 16] : product;
  }
}

}  // namespace kvasir
