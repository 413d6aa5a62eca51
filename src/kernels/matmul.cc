#include "kernels/matmul.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/isa.h"
#include "kernels/matmul_layout.h"
#include "kernels/matmul_pack.h"
#include "kernels/weight_block.h"

namespace kvasir {
namespace {

static_assert(static_cast<int>(WeightFormat::kF32) == matmul::kF32);
static_assert(static_cast<int>(WeightFormat::kF16) == matmul::kF16);
static_assert(static_cast<int>(WeightFormat::kQ4_0) == matmul::kQ4_0);
static_assert(static_cast<int>(WeightFormat::kQ4_1) == matmul::kQ4_1);
static_assert(static_cast<int>(WeightFormat::kQ5_0) == matmul::kQ5_0);
static_assert(static_cast<int>(WeightFormat::kQ8_0) == matmul::kQ8_0);
static_assert(static_cast<int>(WeightFormat::kQ4_K) == matmul::kQ4_K);
static_assert(static_cast<int>(WeightFormat::kQ6_K) == matmul::kQ6_K);
static_assert(static_cast<int>(WeightFormat::kBF16) == matmul::kBF16);
static_assert(static_cast<int>(WeightFormat::kQ5_1) == matmul::kQ5_1);
static_assert(static_cast<int>(WeightFormat::kQ2_K) == matmul::kQ2_K);
static_assert(static_cast<int>(WeightFormat::kQ3_K) == matmul::kQ3_K);
static_assert(static_cast<int>(WeightFormat::kQ5_K) == matmul::kQ5_K);
static_assert(static_cast<int>(WeightFormat::kIQ4_NL) == matmul::kIQ4_NL);
static_assert(static_cast<int>(WeightFormat::kIQ4_XS) == matmul::kIQ4_XS);
static_assert(static_cast<int>(WeightFormat::kMXFP4) == matmul::kMXFP4);
static_assert(kWeightFormatCount == matmul::kFormatCount);
static_assert(kTileRows == matmul::kMaxTileRows);
static_assert(kActivationBlock == kBlockValues);

const matmul::Kernels& ActiveKernels() {
  switch (ActiveIsa()) {
    case Isa::kAvx512:
      return matmul::kAvx512Kernels;
    case Isa::kAvx2:
      return matmul::kAvx2Kernels;
    case Isa::kScalar:
      break;
  }
  return matmul::kScalarKernels;
}

// Most rows of a tile, as matmul.inl shares rows out.
uint32_t MostTileRows(uint32_t rows) {
  return rows <= matmul::kFewRows ? kTileRows : ActiveKernels().tile_rows;
}

// The tile that holds a row, as matmul.inl shares rows out.
struct TilePlace {
  uint32_t first_row;
  uint32_t row_count;
};

TilePlace TileOf(uint32_t row, uint32_t rows) {
  const uint32_t most = MostTileRows(rows);
  const uint32_t tile_count = (rows + most - 1) / most;
  const uint32_t base = rows / tile_count;
  const uint32_t longer = rows % tile_count;  // The first `longer` tiles have base + 1 rows.
  const uint32_t in_longer = longer * (base + 1);
  if (row < in_longer) return {row / (base + 1) * (base + 1), base + 1};
  return {in_longer + (row - in_longer) / base * base, base};
}

size_t TileOffset(const TilePlace& tile, uint32_t cols) {
  return size_t{tile.first_row} * (cols / kBlockValues) * matmul::kRecordBytes;
}

// Activation row `row` as the products see it: exact values of codes times scales, or the floats.
std::vector<double> ActivationRow(const Activations& x, uint32_t row, bool is_quantized) {
  std::vector<double> values(x.cols);
  if (!is_quantized) {
    for (uint32_t c = 0; c < x.cols; ++c) values[c] = x.values[size_t{row} * x.cols + c];
    return values;
  }
  const TilePlace tile = TileOf(row, x.rows);
  const uint32_t r = row - tile.first_row;
  const std::byte* record = x.quantized + TileOffset(tile, x.cols);
  for (uint32_t c = 0; c < x.cols; c += kBlockValues) {
    float scale = 0;
    std::memcpy(&scale, record + tile.row_count * (32 + 4 * matmul::kSlotScale) + 4 * r, 4);
    for (uint32_t i = 0; i < kBlockValues; ++i) {
      const int8_t code = static_cast<int8_t>(record[32 * r + i]);
      values[c + i] = double{scale} * code;
    }
    record += size_t{tile.row_count} * matmul::kRecordBytes;
  }
  return values;
}

// Weight row `row` as the products see it: not rounded to float as UnpackRow's are.
std::vector<double> WeightRow(const PackedMatrix& w, uint32_t row) {
  std::vector<double> values(w.cols);
  if (!IsQuantized(w.format)) {
    std::vector<float> floats(w.cols);
    UnpackRow(w, row, floats);
    values.assign(floats.begin(), floats.end());
    return values;
  }
  for (uint32_t c = 0; c < w.cols; c += kBlockValues) {
    const WeightBlock block = ReadPackedBlock(w, row, c / kBlockValues);
    const BlockScales scales = ScalesOf(w.format, block);
    for (uint32_t i = 0; i < kBlockValues; ++i) {
      values[c + i] = double{scales.scale[i / 16]} * CodeValue(w.format, block.q[i]) +
                      double{scales.min[i / 16]};
    }
  }
  return values;
}

// Activations of a row block take five eighths of the second-level cache, which the weights of a
// few panels and the outputs share; of a cache nobody tells the size of, those of 1 MiB.
size_t RowBlockBytes() {
  static const size_t bytes = [] {
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return std::max(size_t{1} << 20, l2 > 0 ? static_cast<size_t>(l2) : size_t{0}) / 8 * 5;
  }();
  return bytes;
}

}  // namespace

size_t ActivationBytes(uint32_t rows, uint32_t cols) {
  return size_t{rows} * (cols / kBlockValues) * matmul::kRecordBytes;
}

void QuantizeRow(std::span<const float> x, uint32_t row, const Activations& activations) {
  KV_CHECK_EQ(x.size(), size_t{activations.cols});
  QuantizeBlocks(x, row, 0, activations);
}

void QuantizeBlocks(std::span<const float> x, uint32_t row, uint32_t first_block,
                    const Activations& activations) {
  QuantizeRows(x.data(), x.size(), static_cast<uint32_t>(x.size()), row, row + 1, first_block,
               activations);
}

void QuantizeRows(const float* x, size_t x_stride, uint32_t cols, uint32_t row_begin,
                  uint32_t row_end, uint32_t first_block, const Activations& activations) {
  KV_CHECK_EQ(cols % kBlockValues, 0u);
  KV_CHECK_LE(size_t{first_block} * kBlockValues + cols, size_t{activations.cols});
  KV_CHECK_EQ(activations.cols % kBlockValues, 0u);
  KV_CHECK_LE(row_end, activations.rows);
  const matmul::Kernels& kernels = ActiveKernels();
  for (uint32_t row = row_begin; row < row_end;) {
    const TilePlace tile = TileOf(row, activations.rows);
    std::byte* const bytes = activations.quantized + TileOffset(tile, activations.cols) +
                             size_t{first_block} * tile.row_count * matmul::kRecordBytes;
    const uint32_t tile_end = std::min(tile.first_row + tile.row_count, row_end);
    for (; row < tile_end; ++row, x += x_stride) {
      kernels.quantize_row(x, cols / kBlockValues, tile.row_count, row - tile.first_row,
                           reinterpret_cast<unsigned char*>(bytes));
    }
  }
}

void MatMulPanels(const PackedMatrix& w, const Activations& x, uint32_t panel_begin,
                  uint32_t panel_end, Store store, float* out, size_t out_stride) {
  const uint32_t blocks = RowBlocks(x.rows, x.cols);
  for (uint32_t block = 0; block < blocks; ++block) {
    MatMulRowBlock(w, x, block, panel_begin, panel_end, store, out, out_stride);
  }
}

uint32_t RowBlocks(uint32_t rows, uint32_t cols) {
  if (rows <= matmul::kFewRows) return rows == 0 ? 0 : 1;
  const uint32_t tile_rows = MostTileRows(rows);
  const uint32_t tiles = (rows + tile_rows - 1) / tile_rows;
  const size_t fitting = RowBlockBytes() / std::max<size_t>(ActivationBytes(tile_rows, cols), 1);
  const uint32_t most =
      static_cast<uint32_t>(std::clamp<size_t>(fitting, 1, matmul::kMaxRowBlock / tile_rows));
  return (tiles + most - 1) / most;
}

void MatMulRowBlock(const PackedMatrix& w, const Activations& x, uint32_t row_block,
                    uint32_t panel_begin, uint32_t panel_end, Store store, float* out,
                    size_t out_stride) {
  KV_CHECK_EQ(x.cols, w.cols);
  KV_CHECK_EQ(x.cols % kBlockValues, 0u);
  KV_CHECK_LE(panel_end, w.panel_count());
  matmul::MatMulArgs args;
  args.weights = reinterpret_cast<const unsigned char*>(w.bytes);
  args.panel_bytes = PackedPanelBytes(w.format, w.cols);
  args.out_rows = w.rows;
  args.panel_begin = panel_begin;
  args.panel_end = panel_end;
  args.cols = w.cols;
  args.rows = x.rows;
  args.row_blocks = RowBlocks(x.rows, x.cols);
  args.row_block = row_block;
  KV_CHECK_LT(row_block, args.row_blocks);
  args.quantized = reinterpret_cast<const unsigned char*>(x.quantized);
  args.values = x.values;
  args.add = store == Store::kAdd;
  args.out = out;
  args.out_stride = out_stride;
  ActiveKernels().mat_mul[static_cast<size_t>(w.format)](args);
}

uint32_t PanelGrain(uint32_t panels, uint32_t rows, int workers) {
  if (rows > matmul::kFewRows) return 2;
  const uint32_t grain = std::clamp(panels / (static_cast<uint32_t>(workers) * 8), 1u, 64u);
  return rows > kTileRows ? (grain + 1) / 2 * 2 : grain;
}

void MatMulReference(const PackedMatrix& w, const Activations& x, double* out, size_t out_stride) {
  KV_CHECK_EQ(x.cols, w.cols);
  std::vector<std::vector<double>> rows;
  for (uint32_t r = 0; r < x.rows; ++r) {
    rows.push_back(ActivationRow(x, r, IsQuantized(w.format)));
  }
  for (uint32_t o = 0; o < w.rows; ++o) {
    const std::vector<double> weights = WeightRow(w, o);
    for (uint32_t r = 0; r < x.rows; ++r) {
      double sum = 0;
      for (uint32_t c = 0; c < w.cols; ++c) sum += weights[c] * rows[r][c];
      out[size_t{r} * out_stride + o] = sum;
    }
  }
}

}  // namespace kvasir
