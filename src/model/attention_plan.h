// AttentionPlan: how the attention of one batch over one KV group is cut into pieces for the
// workers.
//
// A piece is one AttentionTile: some rows of one sequence and one KV head, over all the chunks that
// the rows see. When a batch gives too few pieces to occupy the workers (one long sequence
// decoding), pieces of single rows are cut further, one per 256-token chunk; their states are
// merged left to right afterwards, which is what a whole piece does inside, so the cut changes no
// bit of the result.
//
// Built once per Run and group, used by all layers of the group. No allocation after construction.
#ifndef KVASIR_MODEL_ATTENTION_PLAN_H_
#define KVASIR_MODEL_ATTENTION_PLAN_H_

#include <cstdint>
#include <vector>

#include "model/batch.h"

namespace kvasir {

inline constexpr uint32_t kWholeRange = 0xFFFFFFFFu;

struct AttentionPiece {
  uint32_t sequence;   // In the batch.
  uint32_t first_row;  // Batch row of the piece's first token.
  uint32_t row_count;
  uint32_t position;  // Of that token.
  uint32_t kv_head;
  uint32_t chunk;  // kWholeRange, or the one chunk to compute
  uint32_t state;  // ... into this state slot.
};

// The chunks of one split row: slots first_state + kv_head * chunk_count + i hold its states.
struct SplitRow {
  uint32_t first_state = 0;
  uint32_t chunk_count = 0;  // 0: the row was not split.
};

class AttentionPlan {
 public:
  struct Options {
    uint32_t kv_heads;
    uint32_t group;   // Query heads a KV head.
    uint32_t window;  // 0: none.
    uint32_t worker_count;
    uint32_t max_rows;  // As in StepLimits.
    uint32_t context_length;
  };
  explicit AttentionPlan(const Options& options);

  void Build(const Batch& batch);

  const std::vector<AttentionPiece>& pieces() const { return pieces_; }
  const SplitRow& split(uint32_t row) const { return split_rows_[row]; }
  uint32_t max_states() const { return max_states_; }

 private:
  uint32_t ChunkCount(uint32_t position, uint32_t* first) const;
  uint32_t TileRows(uint32_t total_rows) const;

  Options options_;
  uint32_t pieces_wanted_;  // Enough for a fair share-out.
  uint32_t max_states_;
  std::vector<AttentionPiece> pieces_;
  std::vector<SplitRow> split_rows_;  // [max_rows]
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_ATTENTION_PLAN_H_
