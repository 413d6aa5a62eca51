// WeightFormat: how a row of weights lies in a model file, and what each value means.
//
// The file form is ggml's: a row of `cols` values in blocks of `block_values`, each block
// `block_bytes` long, little endian. Kernels never run on this form; matmul.h repacks it.
// Source: the GGUF/ggml format documents (block_q4_0 and so on), and for MXFP4 the OCP Microscaling
// specification.
#ifndef KVASIR_KERNELS_WEIGHT_FORMAT_H_
#define KVASIR_KERNELS_WEIGHT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvasir {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ8_0,
  kQ4_K,
  kQ6_K,
  kBF16,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ5_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
};
inline constexpr int kWeightFormatCount = 16;

struct WeightFormatTraits {
  std::string_view name;  // As tools print it: "F32", "Q4_K".
  uint32_t block_values;  // Values a block; a row is a whole number of blocks.
  uint32_t block_bytes;
};

const WeightFormatTraits& TraitsOf(WeightFormat format);

// Bytes of one row in the file. REQUIRES: cols is a multiple of block_values.
size_t FileRowBytes(WeightFormat format, uint32_t cols);

// The definition of the format: value by value, in float32 (exact for F32, F16 and BF16; for the
// others the products and sums that ggml's reference dequantization makes, in its order, so that
// the oracle's weights are met bit for bit). Slow on purpose; the reference forward pass and the
// tests use it. REQUIRES: file_row.size() == FileRowBytes(format, out.size()).
void DequantizeRow(WeightFormat format, std::span<const std::byte> file_row, std::span<float> out);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_WEIGHT_FORMAT_H_
