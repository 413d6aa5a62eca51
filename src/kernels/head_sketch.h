// HeadSketch: a smaller copy of a Q8_0 output head that bounds every logit from above.
//
// To find the largest logit not every row of the head need be read in full: a row whose upper bound
// lies below a logit already computed cannot win. The sketch holds each row w as s (about 5.1 bits
// a value) and bounds what it leaves out, r = w - s, by Cauchy and Schwarz block by block:
//   w.a = s.a' + r.a' + w.(a - a') <= s.a' + sum_b |r_b| |a'_b| + |w| |a - a'|
// where a is what the head multiplies (the quantized activations) and a' its requantized form. The
// bound is proven, not estimated: norms are rounded up, and the last term carries the rounding of
// both float computations. It decides what is read, never what a logit is: survivors are computed
// by the head itself (model/head_scan.h).
//
// Columns are taken in falling order of the weight that the final norm gives them: activations are
// large there, so the first 64 columns are kept at 8 bits (Q8_0), the others at 4 (Q4_0). The norms
// are a third matrix (Q4_1, rounded up) that is multiplied by the norms of a': three products of
// kernels/matmul.h add up to the bound, on every instruction set with the same bits.
// docs/HEAD.md: the measurements behind this choice. Thread: immutable once built.
#ifndef KVASIR_KERNELS_HEAD_SKETCH_H_
#define KVASIR_KERNELS_HEAD_SKETCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/status.h"
#include "kernels/matmul.h"

namespace kvasir {

class HeadSketch {
 public:
  // Whether a head of this kind can have one: Q8_0, 128 to 4096 columns.
  static bool Suits(WeightFormat format, uint32_t cols);

  // Memory for the sketch of a head in file form [rows, cols], and the order of its columns by
  // |channel_weights| [cols]. Looks at a sample of the rows only. kResourceExhausted without
  // memory. REQUIRES: Suits(kQ8_0, cols), file.size() == rows * FileRowBytes(kQ8_0, cols).
  static StatusOr<HeadSketch> Create(std::span<const std::byte> file, uint32_t rows, uint32_t cols,
                                     std::span<const float> channel_weights);

  // Builds panels [panel_begin, panel_end). False: a row has values that no bound can be given for
  // (not finite, or of wild range) and the sketch is useless. Disjoint ranges may run on several
  // threads.
  bool BuildPanels(std::span<const std::byte> file, uint32_t panel_begin, uint32_t panel_end);

  uint32_t panel_count() const { return fine_.panel_count(); }
  size_t panel_bytes() const { return panel_bytes_; }  // What one panel's bounds read.
  size_t bytes() const { return buffer_.size(); }

  // Bytes of the prepared form of up to `rows` activation rows.
  size_t PreparedBytes(uint32_t rows) const;

  // Prepares row `row` of `rows` from h [cols], the same floats that QuantizeRow is given for the
  // head. `prepared` is 64-byte aligned. False: no bound holds for this row (not finite, tiny or
  // huge); what BoundPanels writes for it then means nothing. Rows are independent.
  bool PrepareRow(std::span<const float> h, uint32_t row, uint32_t rows, std::byte* prepared) const;

  // out[r * out_stride + o] >= the logit that MatMulPanels computes from the head, for the o of the
  // panels, o < rows of the head.
  void BoundPanels(uint32_t rows, const std::byte* prepared, uint32_t panel_begin,
                   uint32_t panel_end, float* out, size_t out_stride) const;

 private:
  static constexpr uint32_t kFineColumns = 64;
  static constexpr uint32_t kSlots = 32;       // Columns of the norms' matrix:
  static constexpr uint32_t kGroups = 30;      // |r_b| of up to 30 groups of 32-blocks,
  static constexpr uint32_t kFineNorm = 30;    // |w| of the fine columns,
  static constexpr uint32_t kCoarseNorm = 31;  // and of the others.
  using Norms = std::array<float, kSlots>;
  struct Row;

  HeadSketch() = default;
  Activations Part(const PackedMatrix& matrix, uint32_t rows, std::byte* prepared) const;
  void TakeRow(const std::byte* file_row, Row* row) const;
  uint32_t GroupOf(uint32_t block) const { return block / group_blocks_; }
  void MeasureSample(std::span<const std::byte> file);

  HugeBuffer buffer_;
  PackedMatrix fine_;    // [rows, 64] Q8_0
  PackedMatrix coarse_;  // [rows, cols - 64] Q4_0
  PackedMatrix norms_;   // [rows, 32] Q4_1
  size_t panel_bytes_ = 0;
  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  uint32_t group_blocks_ = 1;
  std::vector<uint32_t> order_;  // [cols] the head's column at each place of the sketch
  Norms typical_{};              // What a slot's norms are divided by: their mean in the sample.
};

}  // namespace kvasir

#endif  // KVASIR_KERNELS_HEAD_SKETCH_H_
