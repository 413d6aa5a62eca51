// MatMul: activations [rows, cols] times a repacked weight matrix [out_rows, cols] transposed.
//   out[r][o] = sum_k w[o][k] * x[r][k]
//
// Weights are repacked once at load into panels of 16 output rows, k in groups of 4, each panel one
// linear stream (docs/ARCHITECTURE.md, "Weight layouts"). Quantized formats multiply int8
// activations with one f32 scale per 32 values; F32 and F16 weights multiply the float activations.
//
// Numerics: one accumulation order per output, 32-blocks of k in order, in one lane, with the
// integer part exact. A result depends on the weights' row and the activation row only: not on the
// other rows, the tile, the range of panels asked for, the thread or the instruction set. Bit for
// bit. Accuracy: against double arithmetic on the same int8 activations, max |error| / max |out| <=
// 1e-6. Thread: pure functions; callers share out panels. Source: docs/ARCHITECTURE.md, "Kernels".
#ifndef KVASIR_KERNELS_MATMUL_H_
#define KVASIR_KERNELS_MATMUL_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/weight_format.h"

namespace kvasir {

inline constexpr uint32_t kPanelRows =
    16;  // Output rows a panel; the last panel is padded with zeros.
inline constexpr uint32_t kTileRows = 12;  // Activation rows a tile, at most.

// A view of one repacked matrix. The bytes are 64-byte aligned and owned elsewhere
// (model/weights.h).
struct PackedMatrix {
  WeightFormat format = WeightFormat::kF32;
  uint32_t rows = 0;  // Output features.
  uint32_t cols = 0;  // Input features; a multiple of the format's block_values.
  const std::byte* bytes = nullptr;

  uint32_t panel_count() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// Bytes of one panel, a multiple of 64; a matrix takes panel_count() of them.
size_t PackedPanelBytes(WeightFormat format, uint32_t cols);

// Repacks panels [panel_begin, panel_end) of a file-form matrix. `file` holds all rows, contiguous;
// `packed` is the whole packed matrix. Disjoint ranges may run on several threads.
// REQUIRES: file.size() == rows * FileRowBytes, packed.size() == panel_count * PackedPanelBytes.
void PackPanels(WeightFormat format, std::span<const std::byte> file, uint32_t rows, uint32_t cols,
                uint32_t panel_begin, uint32_t panel_end, std::span<std::byte> packed);

// Row `row` as floats, equal to DequantizeRow of the file's row: the embedding lookup.
// REQUIRES: row < matrix.rows, out.size() == matrix.cols.
void UnpackRow(const PackedMatrix& matrix, uint32_t row, std::span<float> out);

// Activations of one matrix product: the float rows, and their int8 form in the order the tile
// wants. Storage is the caller's; a workspace of ActivationBytes(rows, cols) serves any smaller
// shape.
struct Activations {
  uint32_t rows = 0;
  uint32_t cols = 0;               // REQUIRES: a multiple of 32.
  const float* values = nullptr;   // [rows][cols], read by F32 and F16 weights only.
  std::byte* quantized = nullptr;  // 64-byte aligned.
};
size_t ActivationBytes(uint32_t rows, uint32_t cols);

// Quantizes activation row `row` from x [cols] into its place in `activations`: per 32 values
// scale = amax / 127 and round-half-even, as the peers do it. Rows are independent; any thread, any
// order. A block below 2^-100 counts as zero. A NaN, an infinity or a magnitude of 2^111 and more
// makes every output of its row NaN (quantized formats), never a fault. The product must be given
// the same rows and cols.
void QuantizeRow(std::span<const float> x, uint32_t row, const Activations& activations);

// The same for the 32-blocks from `first_block` on of that row only: x [a multiple of 32]. Disjoint
// ranges of a row may be filled by different threads; the bits are those of QuantizeRow.
inline constexpr uint32_t kActivationBlock = 32;  // Values that share a scale.
void QuantizeBlocks(std::span<const float> x, uint32_t row, uint32_t first_block,
                    const Activations& activations);

// QuantizeBlocks of rows [row_begin, row_end), `cols` values of each, which begin at
// x + (row - row_begin) * x_stride.
void QuantizeRows(const float* x, size_t x_stride, uint32_t cols, uint32_t row_begin,
                  uint32_t row_end, uint32_t first_block, const Activations& activations);

enum class Store : uint8_t {
  kAssign,  // out = result
  kAdd,     // out += result (the residual connection)
};

// Computes panels [panel_begin, panel_end) for all rows of x: out[r * out_stride + o] for the o of
// those panels, o < w.rows (the padding of the last panel is not stored). out is not aligned.
// REQUIRES: x.cols == w.cols; for quantized formats every row has been quantized.
void MatMulPanels(const PackedMatrix& w, const Activations& x, uint32_t panel_begin,
                  uint32_t panel_end, Store store, float* out, size_t out_stride);

// Rows come in blocks whose activations stay in a core's second-level cache while panels pass over
// them: 1 as a rule, more when there are many rows of many columns; 0 without rows.
uint32_t RowBlocks(uint32_t rows, uint32_t cols);

// MatMulPanels for one of the RowBlocks(x.rows, x.cols) only. All of them make the whole; disjoint
// ones, and disjoint panels, may run on several threads. REQUIRES: row_block below that number.
void MatMulRowBlock(const PackedMatrix& w, const Activations& x, uint32_t row_block,
                    uint32_t panel_begin, uint32_t panel_end, Store store, float* out,
                    size_t out_stride);

// Workers share out `panels` * RowBlocks units, all panels of the first row block, then those of
// the next: so each has few activations to keep. Calls body(row_block, panel_begin, panel_end) for
// what units [begin, end) are.
template <typename Body>
void ForRowBlocks(uint32_t panels, uint32_t begin, uint32_t end, Body&& body) {
  while (begin < end) {
    const uint32_t block = begin / panels;
    const uint32_t from = begin - block * panels;
    const uint32_t to = end - begin < panels - from ? from + (end - begin) : panels;
    body(block, from, to);
    begin += to - from;
  }
}

// How many such units a worker should claim at once when `workers` of them share out `panels`
// panels: enough to stream, and few enough that the last claim does not keep the others waiting.
// Pairs where big tiles are computed two panels side by side.
uint32_t PanelGrain(uint32_t panels, uint32_t rows, int workers);

// The slow twin: double accumulation over the packed weights' exact values and the activations'
// int8 values times their scales (float rows for F32 and F16).
void MatMulReference(const PackedMatrix& w, const Activations& x, double* out, size_t out_stride);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_MATMUL_H_
