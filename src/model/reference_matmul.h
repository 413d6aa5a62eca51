// The one numeric loop of the reference forward pass: float32 weights times double activations,
// summed in double in index order.
//
// Blocked for caches and vectorised over activation rows, never over the sum, so that a result
// depends on its weight row and its activation row only. Thread: pure functions.
#ifndef KVASIR_MODEL_REFERENCE_MATMUL_H_
#define KVASIR_MODEL_REFERENCE_MATMUL_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "model/gguf_file.h"

namespace kvasir {

inline constexpr size_t kReferenceLanes = 8;

// Activation rows in tiles of 8, transposed: tile t holds [cols][8], rows beyond the last are zero.
class TiledRows {
 public:
  TiledRows(size_t rows, size_t cols)
      : rows_(rows),
        cols_(cols),
        values_((rows + kReferenceLanes - 1) / kReferenceLanes * kReferenceLanes * cols) {}

  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  size_t tile_count() const { return values_.size() / (cols_ * kReferenceLanes); }
  const double* tile(size_t t) const { return values_.data() + t * cols_ * kReferenceLanes; }
  void Set(size_t row, std::span<const double> values);  // REQUIRES: values.size() == cols().

 private:
  size_t rows_;
  size_t cols_;
  std::vector<double> values_;
};

// Weights come as doubles, since widening them in the loop costs as much as multiplying.
// out[o * 8 + r] = sum over k < depth of w[o * w_stride + k] * x[k * 8 + r], for o < w_rows, r < 8.
void ReferenceTile(const double* w, size_t w_stride, size_t w_rows, const double* x, size_t depth,
                   double* out);

// out[r][o] = sum over k of w[o][k] * x[r][k], w being the tensor's dequantized rows. `threads` is
// at least 1. The result does not depend on it.
void ReferenceMatMul(const GgufTensor& w, const TiledRows& x, int threads,
                     std::vector<std::vector<double>>& out);

// Calls body(i) for i in [0, count) on `threads` threads, claimed one by one.
void ForEachOnThreads(size_t count, int threads, const std::function<void(size_t)>& body);

}  // namespace kvasir

#endif  // KVASIR_MODEL_REFERENCE_MATMUL_H_
