// AttentionPlan: how the attention of one batch over one KV group is cut into pieces for the
// workers.
//
// Rows are put together in tiles (kernels/attention.h): consecutive rows of one sequence, and rows
// of sequences that begin with the same KV blocks, so that a block that several sequences share is
// read once for all of them. A piece is one tile and one KV head, over all the chunks that the rows
// see or, where whole tiles would not occupy the workers (few sequences, long contexts), a run of
// chunks of 256 tokens; the states of all chunks are merged left to right afterwards, which is what
// a whole piece does inside. No cut changes a bit of the result.
//
// Built once per Run and group, used by all layers of the group. No allocation after construction.
#ifndef KVASIR_MODEL_ATTENTION_PLAN_H_
#define KVASIR_MODEL_ATTENTION_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "model/batch.h"

namespace kvasir {

inline constexpr uint32_t kWholeRange = 0xFFFFFFFFu;

struct PlannedTile {
  uint32_t first_row = 0;  // In AttentionPlan::rows.
  uint32_t row_count = 0;
  uint32_t first_chunk = 0;
  uint32_t chunk_count = 0;
  // Of a tile that was cut by chunk: the state slots of KV head h, chunk first_chunk + c, one for
  // each row, begin at first_state + (h * chunk_count + c) * row_count, and h's pieces are counted
  // by counter first_counter + h.
  uint32_t first_state = kWholeRange;
  uint32_t first_counter = 0;

  bool is_cut() const { return first_state != kWholeRange; }
  uint32_t state(uint32_t kv_head, uint32_t chunk) const {
    return first_state + (kv_head * chunk_count + chunk - first_chunk) * row_count;
  }
};

struct AttentionPiece {
  uint32_t tile;
  uint32_t kv_head;
  uint32_t chunk;   // kWholeRange, or the first to compute
  uint32_t chunks;  // of so many.
  uint64_t cost;    // In no unit; pieces come the dearest first.

  bool computes(uint32_t which) const {
    return chunk == kWholeRange || (which >= chunk && which - chunk < chunks);
  }
};

// Sequences of the batch in an order that puts those together which begin with the same blocks of
// KV group 0 (depth-first in the tree of their prefixes). O(n log n) comparisons of block tables.
void OrderByPrefix(const Batch& batch, std::vector<uint32_t>& order);

class AttentionPlan {
 public:
  struct Options {
    uint32_t kv_heads = 1;
    uint32_t group = 1;  // Query heads a KV head.
    uint32_t window = 0;
    uint32_t worker_count = 1;
    uint32_t max_rows = 1;  // As in StepLimits.
    uint32_t context_length = 1;
    uint32_t block_tokens = 16;
    uint32_t kv_group = 0;  // Index into BatchSequence::blocks.
  };
  // Sequences of at most this many rows are never cut into several tiles, if a tile holds as many.
  static constexpr uint32_t kShortRows = 8;

  explicit AttentionPlan(const Options& options);

  // `order` is a permutation of the batch's sequences, as of OrderByPrefix.
  void Build(const Batch& batch, std::span<const uint32_t> order);

  const std::vector<AttentionPiece>& pieces() const { return pieces_; }
  const std::vector<PlannedTile>& tiles() const { return tiles_; }
  // By place: rows of one tile stand together, those of a sequence in order.
  const std::vector<AttentionRow>& rows() const { return rows_; }
  const std::vector<uint32_t>& batch_rows() const { return batch_rows_; }  // Row in the batch.
  // Some tile is cut into runs of chunks.
  bool cuts() const { return counter_count_ > 0; }
  // Every sequence lies in one tile: no piece needs the new KV of another piece's rows.
  bool one_tile_each() const { return one_tile_each_; }
  uint32_t max_states() const { return max_states_; }
  uint32_t counter_count() const { return counter_count_; }

 private:
  uint32_t FirstSeen(uint32_t position) const;
  uint32_t MostRows() const { return kMaxAttentionRows / options_.group; }
  uint32_t TileRows(const BatchSequence& sequence, uint32_t total_rows) const;
  void AddSequence(const Batch& batch, uint32_t index, uint32_t first_batch_row,
                   uint32_t total_rows);
  AttentionRow SharedRow(const BatchSequence& sequence) const;
  void MeasureTile(PlannedTile& tile, uint64_t* cost) const;
  void AddPieces(uint32_t tile_index, uint64_t cost, uint64_t total_cost, uint32_t* next_state);

  Options options_;
  uint32_t pieces_wanted_;  // Enough for a fair share-out.
  uint32_t max_states_;
  std::vector<AttentionPiece> pieces_;
  std::vector<PlannedTile> tiles_;
  std::vector<uint64_t> costs_;  // Of a KV head, by tile.
  std::vector<AttentionRow> rows_;
  std::vector<uint32_t> batch_rows_;
  std::vector<uint32_t> first_rows_;  // [sequences] in the batch.
  const BatchSequence* previous_ = nullptr;
  bool one_tile_each_ = true;
  uint32_t counter_count_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_ATTENTION_PLAN_H_
