// EncodeRow: floats to a row of a weight format: DequantizeRow's other direction, what `kvasir
// quantize` is made of.
//
// Q8_0, Q4_0, Q4_1, Q5_0: the standard rounding, to the nearest code of a scale that the block's
// extremes give (bytes equal to the gguf package's). Q4_K, Q6_K: the scales are searched so that
// the sum of squared errors is small: several grids for each sub-block, each refined by least
// squares, then the neighbours of the rounded scales. Deterministic. Thread: pure function.
#ifndef KVASIR_KERNELS_WEIGHT_ENCODER_H_
#define KVASIR_KERNELS_WEIGHT_ENCODER_H_

#include <cstddef>
#include <span>

#include "kernels/weight_format.h"

namespace kvasir {

// F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q8_0, Q4_K and Q6_K.
bool CanEncode(WeightFormat format);

// Fills `out` from finite values. F16 and scales round to infinity beyond 65,504: a caller that
// cannot exclude such values looks at what DequantizeRow makes of the bytes.
// REQUIRES: CanEncode(format), values.size() a multiple of the format's block_values, out.size() ==
// FileRowBytes(format, values.size()).
void EncodeRow(WeightFormat format, std::span<const float> values, std::span<std::byte> out);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_WEIGHT_ENCODER_H_
