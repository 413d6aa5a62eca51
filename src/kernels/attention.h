// Attention over paged KV, fused over the query heads that share one KV head.
//
// KV of one (layer, KV head) lies in units of 16 tokens at absolute positions, as f16, int8 or int4
// (kernels/stored_kv.h). A KV block of `block_tokens` (a multiple of 16 that divides 256) tokens
// holds block_tokens / 16 consecutive K units from k_offset and V units from v_offset. A staged
// type of K is read as f16 in the row's own unit, the one that holds its position, and as stored in
// those before it: by position, however the prompt was cut.
//
// Numerics (the contract that makes reuse exact): positions are cut into fixed chunks of 256 at
// absolute positions. Within a chunk: all scores, their maximum, the exponentials and their sum in
// a fixed order of 16 lanes, then P*V token by token in f32. Chunks merge left to right. What a
// query row gives depends on its own q, its position, the window and the KV bytes it may see: never
// on the other rows of the tile, what they share, the group split, the block size, the thread or
// the instruction set. Tokens beyond what a row may see are skipped by position only; stale bytes
// in their slots never reach a result. Accuracy against AttentionReference, relative to max |out|:
// kAttentionMaxRelError * max(1, largest |scale q . k|), since a score's rounding error grows with
// it; with quantized K or V kQuantizedAttentionMaxRelError, for queries and weights are rounded to
// 16 bits there. A cap adds 1e-6 times itself. Thread: pure functions; AttendChunk takes 230 KiB of
// stack, nothing of the heap. Source: Milakov and Gimelshein 2018 (online softmax),
// arXiv:1805.02867; Kwon et al. 2023 (paged KV).
#ifndef KVASIR_KERNELS_ATTENTION_H_
#define KVASIR_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/stored_kv.h"

namespace kvasir {

inline constexpr uint32_t kChunkTokens = 256;
inline constexpr uint32_t kMaxAttentionRows = 64;  // row_count * group of one tile.
inline constexpr double kAttentionMaxRelError = 2e-6;
inline constexpr double kQuantizedAttentionMaxRelError = 5e-4;

// One query token of a tile.
struct AttentionRow {
  uint32_t position = 0;
  // Units wholly inside [shared_begin, shared_end) are the very units of the tile's previous row,
  // in memory, where both rows see them: they are gone through once for both. Only the reading
  // depends on it, never a result. kWholeSequence: the row before is of the same sequence.
  uint32_t shared_begin = 0;
  uint32_t shared_end = 0;
  // Block base addresses by position / block_tokens. Entries wholly outside the row's window are
  // never read, but those of rows of one sequence must agree.
  const std::byte* const* blocks = nullptr;
};
inline constexpr uint32_t kWholeSequence = 0xFFFFFFFFu;  // As shared_end, with shared_begin 0.

// Query rows of any sequences, `group` heads each, and one KV head. A row at position p sees
// positions [max(0, p - window + 1), p]; window 0 means no limit.
struct AttentionTile {
  const AttentionRow* rows = nullptr;  // [row_count]; a sequence's rows stand together.
  const float* const* q = nullptr;     // [row_count], each [group][head_dim], after RoPE.
  uint32_t row_count = 0;
  uint32_t group = 0;
  uint32_t head_dim = 0;  // A multiple of 16, at most 256.
  float scale = 0;        // Multiplies q . k; positive.
  float cap = 0;          // Positive: a score s is then cap * tanh(s / cap). 0: it is s.
  uint32_t window = 0;
  uint32_t block_tokens = 0;
  size_t k_offset = 0;  // Bytes from a block's base to its first K unit of this layer and head.
  size_t v_offset = 0;
  StoredType k_type = StoredType::kF16;
  StoredType v_type = StoredType::kF16;
  // Of a staged k_type: [row_count], each row's own K unit, f16.
  const std::byte* const* own_k = nullptr;
};

// Un-normalised softmax state of a tile's rows (row i * group + g): o = sum p v, max, sum of p.
// A row that sees no token has sum 0 and max -infinity.
struct AttentionState {
  float* o = nullptr;    // [row_count * group][head_dim], 64-byte aligned
  float* max = nullptr;  // [row_count * group]
  float* sum = nullptr;  // [row_count * group]
};

// First and one-past-last chunk that any row of the tile sees.
struct ChunkRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};
ChunkRange ChunksOf(const AttentionTile& tile);

// What the same thread computes next, so that its keys are fetched meanwhile; changes no result.
// Only the first row's blocks are looked at.
struct AttentionNext {
  const AttentionTile* tile = nullptr;  // May lack q; null: unknown.
  uint32_t chunk = 0;
};

// One chunk of the tile into `state` (overwritten). Returns how many K and V units it went through.
// REQUIRES: row_count * group <= kMaxAttentionRows.
uint32_t AttendChunk(const AttentionTile& tile, uint32_t chunk, const AttentionState& state,
                     const AttentionNext& next = {});

// state = state merged with `next`, the chunk to its right; both for `rows` rows of head_dim.
// Starting from chunk `ChunksOf().begin`'s own state and merging on gives what Attend gives, bit
// for bit.
void MergeAttention(uint32_t rows, uint32_t head_dim, const AttentionState& next,
                    const AttentionState& state);

// out = o / sum. Row i's heads go to out[i], [group][head_dim].
void FinishAttention(const AttentionTile& tile, const AttentionState& state, float* const* out);

// All chunks left to right, then Finish; returns the units of all. `scratch` holds
// AttendScratchFloats(tile) floats, 64-byte aligned.
size_t AttendScratchFloats(uint32_t row_count, uint32_t group, uint32_t head_dim);
uint32_t Attend(const AttentionTile& tile, float* scratch, float* const* out,
                const AttentionNext& next = {});

// Writes k and v [head_dim] of one token into slot `slot` (0..block_tokens-1) of an f16 block.
void WriteKv(std::span<const float> k, std::span<const float> v, std::byte* block, size_t k_offset,
             size_t v_offset, uint32_t slot);

// The definition, in double, dense and without chunks, over the same stored values.
// out is [row_count][group][head_dim].
void AttentionReference(const AttentionTile& tile, double* out);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_ATTENTION_H_
