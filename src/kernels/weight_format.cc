#include "kernels/weight_format.h"

#include <cstring>

#include "base/check.h"
#include "kernels/row_ops.h"
#include "kernels/weight_block.h"

namespace kvasir {

const WeightFormatTraits& TraitsOf(WeightFormat format) {
  static constexpr WeightFormatTraits kTraits[kWeightFormatCount] = {
      {"F32", 1, 4},      {"F16", 1, 2},      {"Q4_0", 32, 18},     {"Q4_1", 32, 20},
      {"Q5_0", 32, 22},   {"Q8_0", 32, 34},   {"Q4_K", 256, 144},   {"Q6_K", 256, 210},
      {"BF16", 1, 2},     {"Q5_1", 32, 24},   {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
      {"Q5_K", 256, 176}, {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17},
  };
  const size_t index = static_cast<size_t>(format);
  KV_CHECK_LT(index, size_t{kWeightFormatCount});
  return kTraits[index];
}

size_t FileRowBytes(WeightFormat format, uint32_t cols) {
  const WeightFormatTraits& traits = TraitsOf(format);
  KV_CHECK_EQ(cols % traits.block_values, 0u);
  return size_t{cols / traits.block_values} * traits.block_bytes;
}

void DequantizeRow(WeightFormat format, std::span<const std::byte> file_row, std::span<float> out) {
  const uint32_t cols = static_cast<uint32_t>(out.size());
  KV_CHECK_EQ(file_row.size(), FileRowBytes(format, cols));
  if (format == WeightFormat::kF32) {
    std::memcpy(out.data(), file_row.data(), file_row.size());
    return;
  }
  if (!IsQuantized(format)) {
    for (uint32_t c = 0; c < cols; ++c) {
      uint16_t bits = 0;
      std::memcpy(&bits, file_row.data() + size_t{c} * 2, 2);
      out[c] = format == WeightFormat::kBF16 ? FloatFromBf16(bits) : FloatFromHalf(bits);
    }
    return;
  }
  for (uint32_t b = 0; b < cols / kBlockValues; ++b) {
    DequantizeBlock(format, ReadFileBlock(format, file_row.data(), b),
                    &out[size_t{b} * kBlockValues]);
  }
}

}  // namespace kvasir
