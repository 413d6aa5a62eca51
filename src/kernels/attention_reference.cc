// The slow twin of kernels/attention.h: softmax(scale q K^T) V over the visible tokens, in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"

namespace kvasir {
namespace {

const std::byte* UnitAt(const AttentionTile& tile, const AttentionRow& row, size_t offset,
                        size_t unit_bytes, uint32_t position) {
  const std::byte* block = row.blocks[position / tile.block_tokens];
  KV_CHECK(block != nullptr);
  return block + offset + position % tile.block_tokens / kUnitTokens * unit_bytes;
}

double KeyAt(const AttentionTile& tile, uint32_t row_index, uint32_t position, uint32_t channel) {
  const AttentionRow& row = tile.rows[row_index];
  const uint32_t place = position % kUnitTokens;
  if (IsStaged(tile.k_type) && position / kUnitTokens == row.position / kUnitTokens) {
    return StoredK(StoredType::kF16, tile.head_dim, tile.own_k[row_index], place, channel);
  }
  const size_t unit_bytes = KUnitBytes(tile.k_type, tile.head_dim);
  return StoredK(tile.k_type, tile.head_dim, UnitAt(tile, row, tile.k_offset, unit_bytes, position),
                 place, channel);
}

double ValueAt(const AttentionTile& tile, const AttentionRow& row, uint32_t position,
               uint32_t channel) {
  const size_t unit_bytes = VUnitBytes(tile.v_type, tile.head_dim);
  return StoredV(tile.v_type, tile.head_dim, UnitAt(tile, row, tile.v_offset, unit_bytes, position),
                 position % kUnitTokens, channel);
}

void AttendRow(const AttentionTile& tile, uint32_t row_index, const float* q, double* out) {
  const AttentionRow& row = tile.rows[row_index];
  const uint32_t position = row.position;
  const uint32_t first =
      tile.window == 0 || position < tile.window ? 0 : position - tile.window + 1;
  std::vector<double> weight;
  for (uint32_t t = first; t <= position; ++t) {
    double score = 0;
    for (uint32_t d = 0; d < tile.head_dim; ++d) {
      score += q[d] * KeyAt(tile, row_index, t, d);
    }
    score *= tile.scale;
    weight.push_back(tile.cap > 0 ? tile.cap * std::tanh(score / tile.cap) : score);
  }
  const double max = *std::max_element(weight.begin(), weight.end());
  double sum = 0;
  for (double& w : weight) sum += w = std::exp(w - max);
  for (uint32_t d = 0; d < tile.head_dim; ++d) {
    double value = 0;
    for (uint32_t t = first; t <= position; ++t) {
      value += weight[t - first] * ValueAt(tile, row, t, d);
    }
    out[d] = value / sum;
  }
}

}  // namespace

void AttentionReference(const AttentionTile& tile, double* out) {
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    for (uint32_t g = 0; g < tile.group; ++g) {
      AttendRow(tile, i, tile.q[i] + size_t{g} * tile.head_dim,
                out + (size_t{i} * tile.group + g) * tile.head_dim);
    }
  }
}

}  // namespace kvasir
