// The slow twin of kernels/attention.h: softmax(scale q K^T) V over the visible tokens, in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

double StoredValue(const PagedKv& kv, size_t offset, uint32_t position, size_t index_in_unit,
                   uint32_t head_dim) {
  const std::byte* block = kv.blocks[position / kv.block_tokens];
  KV_CHECK(block != nullptr);
  const size_t unit = position % kv.block_tokens / kUnitTokens;
  const auto* halves = reinterpret_cast<const uint16_t*>(block + offset);
  return FloatFromHalf(halves[unit * kUnitTokens * head_dim + index_in_unit]);
}

void AttendRow(const AttentionTile& tile, uint32_t position, const float* q, double* out) {
  const uint32_t first =
      tile.window == 0 || position < tile.window ? 0 : position - tile.window + 1;
  std::vector<double> weight;
  for (uint32_t t = first; t <= position; ++t) {
    double score = 0;
    for (uint32_t d = 0; d < tile.head_dim; ++d) {
      const size_t index = size_t{d} * kUnitTokens + t % kUnitTokens;
      score += q[d] * StoredValue(tile.kv, tile.kv.k_offset, t, index, tile.head_dim);
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
      value += weight[t - first] * StoredValue(tile.kv, tile.kv.v_offset, t, index, tile.head_dim);
    }
    out[d] = value / sum;
  }
}

}  // namespace

void AttentionReference(const AttentionTile& tile, double* out, size_t out_stride) {
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    for (uint32_t g = 0; g < tile.group; ++g) {
      AttendRow(tile, tile.first_position + i,
                tile.q + i * tile.q_stride + size_t{g} * tile.head_dim,
                out + i * out_stride + size_t{g} * tile.head_dim);
    }
  }
}

}  // namespace kvasir
