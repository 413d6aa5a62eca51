// WeightBlock: 32 consecutive values of one row of a quantized format, taken apart. Internal to
// kernels/: the step between the file form (weight_format.h) and the panels (matmul_layout.h).
//
// A value is scale * CodeValue(q), plus the minimum for formats with one. Scales stay as the file
// has them, so that taking a block apart and putting it into a panel loses nothing.
#ifndef KVASIR_KERNELS_WEIGHT_BLOCK_H_
#define KVASIR_KERNELS_WEIGHT_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/weight_format.h"

namespace kvasir {

inline constexpr uint32_t kBlockValues = 32;

struct WeightBlock {
  uint8_t q[kBlockValues];  // Unsigned codes; Q8_0 is stored as q + 128.
  uint16_t d;  // Bits of the f16 scale, for K-quants that of 256 values; MXFP4: of a bf16 one.
  uint16_t m;  // Bits of the f16 minimum (Q4_1, Q5_1), or of its scale (Q2_K, Q4_K, Q5_K).
  // Q4_K, Q5_K: scale and minimum of this block. Q3_K, Q6_K: int8 scales of its halves. Q2_K: of
  // each half the scale (low nibble) and the minimum. IQ4_XS: the int8 scale, and zero.
  uint8_t sub[2];
};

// The scales of a block as floats, exact products of the stored ones: values q[16 * i ..] have
// scale[i]; min[i] is added to each (0 for formats without).
struct BlockScales {
  float scale[2];
  float min[2];
};

bool IsQuantized(WeightFormat format);  // All but F32, F16 and BF16.
bool HasMinimum(WeightFormat format);

// The integer that code q stands for. REQUIRES: IsQuantized(format), q is a code of it.
int CodeValue(WeightFormat format, uint8_t q);

float FloatFromBf16(uint16_t bits);

// Block `block` (32 values, whatever the format's own block is) of a row in the file.
WeightBlock ReadFileBlock(WeightFormat format, const std::byte* file_row, uint32_t block);

BlockScales ScalesOf(WeightFormat format, const WeightBlock& block);

// The 32 values as the format's reference makes them, rounding for rounding.
void DequantizeBlock(WeightFormat format, const WeightBlock& block, float* out);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_WEIGHT_BLOCK_H_
