// Repacking: file form to panels and back. matmul_layout.h says where every byte goes.
#include "kernels/matmul_pack.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/matmul_layout.h"
#include "kernels/row_ops.h"
#include "kernels/weight_block.h"

namespace kvasir {
namespace {

const matmul::PanelLayout& LayoutOf(WeightFormat format) {
  return matmul::kPanelLayouts[static_cast<size_t>(format)];
}

size_t FloatBytes(WeightFormat format) { return format == WeightFormat::kF32 ? 4 : 2; }

// Where one 32-block of a panel lies.
struct BlockPlace {
  size_t header;
  size_t lines;
  size_t planes;
  size_t scales;
};

BlockPlace PlaceOf(const matmul::PanelLayout& layout, uint32_t block) {
  const size_t pair = block / 2;
  const size_t half = block % 2;
  const size_t headers = pair / matmul::kPairsPerHeader;
  const size_t start = pair * layout.pair_bytes + (headers + 1) * layout.header_bytes;
  BlockPlace place;
  place.header =
      headers * (matmul::kPairsPerHeader * layout.pair_bytes + size_t{layout.header_bytes});
  place.lines = start + half * layout.line_bytes;
  place.planes = start + layout.plane_offset + half * layout.plane_bytes;
  place.scales = start + layout.scale_offset + half * layout.scale_bytes;
  return place;
}

// Which bits of a code lie in planes: two from `pair_shift` on in the first two planes, one at
// `bit_shift` in the plane at `bit_offset`. -1: none.
struct Planes {
  int pair_shift = -1;
  int bit_shift = -1;
  uint32_t bit_offset = 0;
};

Planes PlanesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ5_0:
    case WeightFormat::kQ5_1:
    case WeightFormat::kQ5_K:
      return {-1, 4, 0};
    case WeightFormat::kQ6_K:
      return {4, -1, 0};
    case WeightFormat::kQ2_K:
      return {0, -1, 0};
    case WeightFormat::kQ3_K:
      return {0, 2, 128};
    default:
      return {};
  }
}

// Adds one row's block to a zeroed panel.
void WriteBlock(WeightFormat format, const WeightBlock& block, const BlockPlace& place,
                uint32_t row, uint8_t* panel) {
  uint8_t* lines = panel + place.lines + row * 4;
  uint8_t* planes = panel + place.planes + row * 4;
  uint8_t* scales = panel + place.scales;
  const matmul::PanelLayout& layout = LayoutOf(format);
  if (format == WeightFormat::kQ8_0) {
    for (uint32_t g = 0; g < 8; ++g) std::memcpy(lines + 64 * g, block.q + 4 * g, 4);
  } else if (layout.line_bytes != 0) {
    for (uint32_t j = 0; j < 4; ++j) {
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t low = block.q[8 * j + i] & 15u;
        const uint32_t high = block.q[8 * j + 4 + i] & 15u;
        lines[64 * j + i] = static_cast<uint8_t>(low | high << 4);
      }
    }
  }
  const Planes of = PlanesOf(format);
  for (uint32_t k = 0; of.pair_shift >= 0 && k < kBlockValues; ++k) {
    uint8_t& plane = planes[64 * (k / 16) + k % 4];
    const int code = (block.q[k] >> of.pair_shift) & 3;
    plane = static_cast<uint8_t>(plane | code << (k % 16 / 4 * 2));
  }
  for (uint32_t k = 0; of.bit_shift >= 0 && k < kBlockValues; ++k) {
    uint8_t& plane = planes[of.bit_offset + k % 4];
    plane = static_cast<uint8_t>(plane | ((block.q[k] >> of.bit_shift) & 1) << (k / 4));
  }
  if (layout.header_bytes != 0) {
    std::memcpy(panel + place.header + 2 * row, &block.d, 2);
    std::memcpy(panel + place.header + 32 + 2 * row, &block.m, 2);  // Zero for those without.
    scales[row] = block.sub[0];
    scales[16 + row] = block.sub[1];
  } else {
    std::memcpy(scales + 2 * row, &block.d, 2);
    if (layout.minima != 0) std::memcpy(scales + 32 + 2 * row, &block.m, 2);
  }
}

uint8_t* PanelAt(std::span<std::byte> packed, size_t panel_bytes, uint32_t panel) {
  return reinterpret_cast<uint8_t*>(packed.data()) + panel * panel_bytes;
}

void PackFloats(size_t value_bytes, const std::byte* row_bytes, uint32_t cols, uint32_t row,
                uint8_t* panel) {
  for (uint32_t k = 0; k < cols; ++k) {
    std::memcpy(panel + (size_t{k} * kPanelRows + row) * value_bytes, row_bytes + k * value_bytes,
                value_bytes);
  }
}

}  // namespace

size_t PackedPanelBytes(WeightFormat format, uint32_t cols) {
  KV_CHECK_EQ(cols % TraitsOf(format).block_values, 0u);
  if (!IsQuantized(format)) return (cols * kPanelRows * FloatBytes(format) + 63) / 64 * 64;
  const matmul::PanelLayout& layout = LayoutOf(format);
  const size_t pairs = (cols / kBlockValues + 1) / 2;
  return pairs * layout.pair_bytes + pairs / matmul::kPairsPerHeader * layout.header_bytes;
}

void PackPanels(WeightFormat format, std::span<const std::byte> file, uint32_t rows, uint32_t cols,
                uint32_t panel_begin, uint32_t panel_end, std::span<std::byte> packed) {
  const size_t row_bytes = FileRowBytes(format, cols);
  const size_t panel_bytes = PackedPanelBytes(format, cols);
  const uint32_t panel_count = (rows + kPanelRows - 1) / kPanelRows;
  KV_CHECK_EQ(file.size(), rows * row_bytes);
  KV_CHECK_EQ(packed.size(), panel_count * panel_bytes);
  KV_CHECK_LE(panel_end, panel_count);
  for (uint32_t panel = panel_begin; panel < panel_end; ++panel) {
    uint8_t* out = PanelAt(packed, panel_bytes, panel);
    std::memset(out, 0, panel_bytes);
    const uint32_t first_row = panel * kPanelRows;
    const uint32_t row_count = std::min(kPanelRows, rows - first_row);
    if (!IsQuantized(format)) {
      for (uint32_t r = 0; r < row_count; ++r) {
        PackFloats(FloatBytes(format), file.data() + (first_row + r) * row_bytes, cols, r, out);
      }
      continue;
    }
    for (uint32_t b = 0; b < cols / kBlockValues; ++b) {
      const BlockPlace place = PlaceOf(LayoutOf(format), b);
      for (uint32_t r = 0; r < row_count; ++r) {
        const std::byte* row = file.data() + (first_row + r) * row_bytes;
        WriteBlock(format, ReadFileBlock(format, row, b), place, r, out);
      }
    }
  }
}

WeightBlock ReadPackedBlock(const PackedMatrix& matrix, uint32_t row, uint32_t block) {
  const WeightFormat format = matrix.format;
  const uint8_t* panel = reinterpret_cast<const uint8_t*>(matrix.bytes) +
                         row / kPanelRows * PackedPanelBytes(format, matrix.cols);
  const uint32_t lane = row % kPanelRows;
  const matmul::PanelLayout& layout = LayoutOf(format);
  const BlockPlace place = PlaceOf(layout, block);
  const uint8_t* lines = panel + place.lines + lane * 4;
  const uint8_t* planes = panel + place.planes + lane * 4;
  const uint8_t* scales = panel + place.scales;
  const Planes of = PlanesOf(format);
  WeightBlock out = {};
  for (uint32_t k = 0; k < kBlockValues; ++k) {
    const uint32_t g = k / 4;
    uint32_t q = 0;
    if (format == WeightFormat::kQ8_0) {
      q = lines[64 * g + k % 4];
    } else if (layout.line_bytes != 0) {
      q = (lines[64 * (g / 2) + k % 4] >> (g % 2 * 4)) & 15u;
    }
    if (of.bit_shift >= 0) q |= ((planes[of.bit_offset + k % 4] >> g) & 1u) << of.bit_shift;
    if (of.pair_shift >= 0) {
      q |= ((planes[64 * (g / 4) + k % 4] >> (g % 4 * 2)) & 3u) << of.pair_shift;
    }
    out.q[k] = static_cast<uint8_t>(q);
  }
  if (layout.header_bytes != 0) {
    std::memcpy(&out.d, panel + place.header + 2 * lane, 2);
    std::memcpy(&out.m, panel + place.header + 32 + 2 * lane, 2);
    out.sub[0] = scales[lane];
    out.sub[1] = scales[16 + lane];
  } else {
    std::memcpy(&out.d, scales + 2 * lane, 2);
    if (layout.minima != 0) std::memcpy(&out.m, scales + 32 + 2 * lane, 2);
  }
  return out;
}

void UnpackRow(const PackedMatrix& matrix, uint32_t row, std::span<float> out) {
  KV_CHECK_LT(row, matrix.rows);
  KV_CHECK_EQ(out.size(), size_t{matrix.cols});
  if (IsQuantized(matrix.format)) {
    for (uint32_t b = 0; b < matrix.cols / kBlockValues; ++b) {
      DequantizeBlock(matrix.format, ReadPackedBlock(matrix, row, b),
                      &out[size_t{b} * kBlockValues]);
    }
    return;
  }
  const size_t value_bytes = FloatBytes(matrix.format);
  const std::byte* panel =
      matrix.bytes + row / kPanelRows * PackedPanelBytes(matrix.format, matrix.cols);
  for (uint32_t k = 0; k < matrix.cols; ++k) {
    const std::byte* p = panel + (size_t{k} * kPanelRows + row % kPanelRows) * value_bytes;
    if (matrix.format == WeightFormat::kF32) {
      std::memcpy(&out[k], p, 4);
    } else {
      uint16_t bits = 0;
      std::memcpy(&bits, p, 2);
      out[k] = matrix.format == WeightFormat::kBF16 ? FloatFromBf16(bits) : FloatFromHalf(bits);
    }
  }
}

}  // namespace kvasir
