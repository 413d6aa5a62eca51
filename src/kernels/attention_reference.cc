// The slow twin of kernels/attention.h: softmax(scale q K^T) V over the visible tokens, in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

double StoredValue(const AttentionTile& tile, const AttentionRow& row, size_t offset,
                   uint32_t position, size_t index_in_unit) {
  const std::byte* block = row.blocks[position / tile.block_tokens];
  KV_CHECK(block != nullptr);
  const size_t unit = position % tile.block_tokens / kUnitTokens;
  const auto* halves = reinterpret_cast<const uint16_t*>(block + offset);
  return FloatFromHalf(halves[unit * kUnitTokens * tile.head_dim + index_in_unit]);
}

void AttendRow(const AttentionTile& tile, const AttentionRow& row, const float* q, double* out) {
  const uint32_t position = row.position;
  const uint32_t first =
      tile.window == 0 || position < tile.window ? 0 : position - tile.window + 1;
  std::vector<double> weight;
  for (uint32_t t = first; t <= position; ++t) {
    double score = 0;
    for (uint32_t d = 0; d < tile.head_dim; ++d) {
      const size_t index = size_t{d} * kUnitTokens + t % kUnitTokens;
      score += q[d] * StoredValue(tile, row, tile.k_offset, t, index);
    }
    weight.push_back(score * tile.scale);
  }
  const double max = *std::max_element(weight.begin(), weight.end());
  double sum = 0;
  for (double& w : weight) sum += w = std::exp(w - max);
  for (uint32_t d = 0; d < tile.head_dim; ++d) {
    double value = 0;
    for (uint32_t t = first; t <= position; ++t) {
      const size_t index = size_t{t % kUnitTokens} * tile.head_dim + d;
      value += weight[t - first] * StoredValue(tile, row, tile.v_offset, t, index);
    }
    out[d] = value / sum;
  }
}

}  // namespace

void AttentionReference(const AttentionTile& tile, double* out) {
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    for (uint32_t g = 0; g < tile.group; ++g) {
      AttendRow(tile, tile.rows[i], tile.q[i] + size_t{g} * tile.head_dim,
                out + (size_t{i} * tile.group + g) * tile.head_dim);
    }
  }
}

}  // namespace kvasir
