#include "model/attention_plan.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/attention.h"

namespace kvasir {

AttentionPlan::AttentionPlan(const Options& options) : options_(options) {
  KV_CHECK_LE(options.group, kMaxAttentionRows);
  pieces_wanted_ = options.worker_count == 1 ? 1 : options.worker_count * 4;
  const uint32_t visible = options.window == 0
                               ? options.context_length
                               : std::min(options.context_length, options.window + kChunkTokens);
  // Only fewer than pieces_wanted_ whole pieces are ever split, so the slots are bounded.
  max_states_ = options.worker_count == 1
                    ? 0
                    : pieces_wanted_ * ((visible + kChunkTokens - 1) / kChunkTokens + 1);
  pieces_.reserve(static_cast<size_t>(options.max_rows) * options.kv_heads + max_states_);
  split_rows_.resize(options.max_rows);
}

uint32_t AttentionPlan::ChunkCount(uint32_t position, uint32_t* first) const {
  const uint32_t begin =
      options_.window == 0 || position + 1 <= options_.window ? 0 : position + 1 - options_.window;
  *first = begin / kChunkTokens;
  return position / kChunkTokens + 1 - *first;
}

uint32_t AttentionPlan::TileRows(uint32_t total_rows) const {
  const uint32_t most = std::max(1u, std::min(16u, kMaxAttentionRows / options_.group));
  const uint32_t fair = total_rows * options_.kv_heads / pieces_wanted_;
  return std::clamp(fair, 1u, most);
}

void AttentionPlan::Build(const Batch& batch) {
  pieces_.clear();
  const uint32_t rows = batch.row_count();
  std::fill(split_rows_.begin(), split_rows_.begin() + rows, SplitRow{});
  const uint32_t tile_rows = TileRows(rows);
  const bool split = options_.worker_count > 1 && rows * options_.kv_heads < pieces_wanted_;
  uint32_t next_state = 0;
  uint32_t row = 0;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const BatchSequence& sequence = batch.sequences[s];
    const uint32_t count = static_cast<uint32_t>(sequence.tokens.size());
    // From the end: later rows see more, and the longest pieces should start first.
    for (uint32_t end = count; end > 0;) {
      const uint32_t begin = end > tile_rows ? end - tile_rows : 0;
      const uint32_t position = sequence.start + begin;
      uint32_t first_chunk = 0;
      const uint32_t chunks = ChunkCount(position, &first_chunk);
      if (split && end - begin == 1 && chunks > 1) {
        split_rows_[row + begin] = {next_state, chunks};
        for (uint32_t head = 0; head < options_.kv_heads; ++head) {
          for (uint32_t c = 0; c < chunks; ++c) {
            pieces_.push_back({s, row + begin, 1, position, head, first_chunk + c, next_state++});
          }
        }
      } else {
        for (uint32_t head = 0; head < options_.kv_heads; ++head) {
          pieces_.push_back({s, row + begin, end - begin, position, head, kWholeRange, 0});
        }
      }
      end = begin;
    }
    row += count;
  }
  KV_CHECK_LE(next_state, max_states_);
}

}  // namespace kvasir
