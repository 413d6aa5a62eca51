#include "kernels/attention.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/attention_table.h"
#include "kernels/isa.h"
#include "kernels/row_ops_table.h"

namespace kvasir {
namespace {

const AttentionTable& ActiveAttention() {
  switch (ActiveIsa()) {
    case Isa::kAvx512:
      return kAttentionAvx512;
    case Isa::kAvx2:
      return kAttentionAvx2;
    case Isa::kScalar:
      break;
  }
  return kAttentionScalar;
}

uint32_t RowsOf(const AttentionTile& tile) { return tile.row_count * tile.group; }

// First position that the row at `position` sees.
uint32_t FirstSeen(const AttentionTile& tile, uint32_t position) {
  if (tile.window == 0 || position < tile.window) return 0;
  return position - tile.window + 1;
}

void CheckTile(const AttentionTile& tile) {
  KV_CHECK(tile.q != nullptr);
  KV_CHECK(tile.kv.blocks != nullptr);
  KV_CHECK_GT(tile.row_count, 0u);
  KV_CHECK_GT(tile.group, 0u);
  KV_CHECK_LE(tile.row_count, kMaxAttentionRows);
  KV_CHECK_LE(RowsOf(tile), kMaxAttentionRows);
  KV_CHECK_GT(tile.head_dim, 0u);
  KV_CHECK_LE(tile.head_dim, kMaxHeadDim);
  KV_CHECK_EQ(tile.head_dim % 16, 0u);
  KV_CHECK_GT(tile.scale, 0.0f);
  KV_CHECK_GT(tile.kv.block_tokens, 0u);
  KV_CHECK_EQ(tile.kv.block_tokens % kUnitTokens, 0u);
  KV_CHECK_EQ(kChunkTokens % tile.kv.block_tokens, 0u);
}

const uint16_t* UnitOf(const PagedKv& kv, size_t offset, uint32_t head_dim, uint32_t position) {
  const std::byte* block = kv.blocks[position / kv.block_tokens];
  KV_CHECK(block != nullptr);
  const size_t unit = position % kv.block_tokens / kUnitTokens;
  const size_t unit_bytes = size_t{kUnitTokens} * head_dim * sizeof(uint16_t);
  return reinterpret_cast<const uint16_t*>(block + offset + unit * unit_bytes);
}

// Pointers to the units that hold tokens [lowest, highest) of the chunk at `base`; no others are
// touched; returns how many. The next chunk's are only hints, but looked up only where the tile
// sees them too.
uint32_t ResolveUnits(const AttentionTile& tile, uint32_t base, uint32_t lowest, uint32_t highest,
                      AttentionJob& job) {
  uint32_t count = 0;
  for (uint32_t unit = 0; unit < kChunkTokens / kUnitTokens; ++unit) {
    const uint32_t token = unit * kUnitTokens;
    const bool seen = token + kUnitTokens > lowest && token < highest;
    if (seen) count += 2;
    job.k[unit] = seen ? UnitOf(tile.kv, tile.kv.k_offset, tile.head_dim, base + token) : nullptr;
    job.v[unit] = seen ? UnitOf(tile.kv, tile.kv.v_offset, tile.head_dim, base + token) : nullptr;
  }
  const uint32_t last = tile.first_position + tile.row_count - 1;
  for (uint32_t unit = 0; unit < AttentionJob::kAhead; ++unit) {
    const uint32_t position = base + kChunkTokens + unit * kUnitTokens;
    const bool seen = lowest < highest && position <= last;
    job.after[unit] = seen ? UnitOf(tile.kv, tile.kv.k_offset, tile.head_dim, position) : nullptr;
  }
  return count;
}

}  // namespace

ChunkRange ChunksOf(const AttentionTile& tile) {
  const uint32_t last = tile.first_position + tile.row_count - 1;
  return {FirstSeen(tile, tile.first_position) / kChunkTokens, last / kChunkTokens + 1};
}

uint32_t AttendChunk(const AttentionTile& tile, uint32_t chunk, const AttentionState& state) {
  CheckTile(tile);
  static_assert(AttentionJob::kRows == kMaxAttentionRows && AttentionJob::kTokens == kChunkTokens &&
                AttentionJob::kUnits == kChunkTokens / kUnitTokens);
  AttentionJob job;
  job.rows = static_cast<int>(RowsOf(tile));
  job.head_dim = static_cast<int>(tile.head_dim);
  job.scale = tile.scale;
  job.o = state.o;
  job.max = state.max;
  job.sum = state.sum;
  const uint32_t base = chunk * kChunkTokens;
  uint32_t lowest = kChunkTokens;
  uint32_t highest = 0;
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    const uint32_t position = tile.first_position + i;
    const uint32_t first = std::max(FirstSeen(tile, position), base) - base;
    const uint32_t last = position < base ? 0 : std::min(position - base + 1, kChunkTokens);
    const bool sees = first < last;
    if (sees) {
      lowest = std::min(lowest, first);
      highest = std::max(highest, last);
    }
    for (uint32_t g = 0; g < tile.group; ++g) {
      const uint32_t row = i * tile.group + g;
      job.q[row] = tile.q + i * tile.q_stride + size_t{g} * tile.head_dim;
      job.begin[row] = sees ? static_cast<int>(first) : 0;
      job.end[row] = sees ? static_cast<int>(last) : 0;
    }
  }
  const uint32_t units = ResolveUnits(tile, base, lowest, highest, job);
  ActiveAttention().chunk(job);
  return units;
}

void MergeAttention(uint32_t rows, uint32_t head_dim, const AttentionState& next,
                    const AttentionState& state) {
  KV_CHECK_EQ(head_dim % 16, 0u);
  const AttentionTable& table = ActiveAttention();
  for (uint32_t r = 0; r < rows; ++r) {
    table.merge(head_dim, next.o + size_t{r} * head_dim, next.max[r], next.sum[r],
                state.o + size_t{r} * head_dim, state.max + r, state.sum + r);
  }
}

void FinishAttention(const AttentionTile& tile, const AttentionState& state, float* out,
                     size_t out_stride) {
  const AttentionTable& table = ActiveAttention();
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    for (uint32_t g = 0; g < tile.group; ++g) {
      const size_t row = size_t{i} * tile.group + g;
      table.divide(tile.head_dim, state.o + row * tile.head_dim, state.sum[row],
                   out + i * out_stride + size_t{g} * tile.head_dim);
    }
  }
}

size_t AttendScratchFloats(uint32_t row_count, uint32_t group, uint32_t head_dim) {
  const size_t rows = size_t{row_count} * group;
  const size_t padded_rows = (rows + 15) / 16 * 16;
  return 2 * (rows * head_dim + 2 * padded_rows);
}

uint32_t Attend(const AttentionTile& tile, float* scratch, float* out, size_t out_stride) {
  const size_t rows = RowsOf(tile);
  const size_t padded_rows = (rows + 15) / 16 * 16;
  const auto carve = [&](float* from) {
    float* const max = from + rows * tile.head_dim;
    return AttentionState{from, max, max + padded_rows};
  };
  const AttentionState state = carve(scratch);
  const AttentionState next =
      carve(scratch + AttendScratchFloats(tile.row_count, tile.group, tile.head_dim) / 2);
  const ChunkRange chunks = ChunksOf(tile);
  uint32_t units = AttendChunk(tile, chunks.begin, state);
  for (uint32_t chunk = chunks.begin + 1; chunk < chunks.end; ++chunk) {
    units += AttendChunk(tile, chunk, next);
    MergeAttention(static_cast<uint32_t>(rows), tile.head_dim, next, state);
  }
  FinishAttention(tile, state, out, out_stride);
  return units;
}

void WriteKv(std::span<const float> k, std::span<const float> v, std::byte* block, size_t k_offset,
             size_t v_offset, uint32_t slot) {
  KV_CHECK_EQ(k.size(), v.size());
  KV_CHECK_LE(k.size(), size_t{kMaxHeadDim});
  const RowOpsTable& ops = ActiveRowOps();
  const size_t head_dim = k.size();
  const size_t unit = size_t{slot / kUnitTokens} * kUnitTokens * head_dim;
  const size_t place = slot % kUnitTokens;
  uint16_t half[kMaxHeadDim];
  ops.half_from_float(k.data(), half, head_dim);
  uint16_t* const k_unit = reinterpret_cast<uint16_t*>(block + k_offset) + unit;
  for (size_t d = 0; d < head_dim; ++d) k_unit[d * kUnitTokens + place] = half[d];
  uint16_t* const v_unit = reinterpret_cast<uint16_t*>(block + v_offset) + unit;
  ops.half_from_float(v.data(), v_unit + place * head_dim, head_dim);
}

}  // namespace kvasir
