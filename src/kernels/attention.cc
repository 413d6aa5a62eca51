#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/attention_table.h"
#include "kernels/isa.h"

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
  KV_CHECK(tile.rows != nullptr);
  KV_CHECK_GT(tile.row_count, 0u);
  KV_CHECK_GT(tile.group, 0u);
  KV_CHECK_LE(tile.row_count, kMaxAttentionRows);
  KV_CHECK_LE(RowsOf(tile), kMaxAttentionRows);
  KV_CHECK_GT(tile.head_dim, 0u);
  KV_CHECK_LE(tile.head_dim, kMaxHeadDim);
  KV_CHECK_EQ(tile.head_dim % 16, 0u);
  KV_CHECK_GT(tile.scale, 0.0f);
  KV_CHECK_GE(tile.cap, 0.0f);
  KV_CHECK_GT(tile.block_tokens, 0u);
  KV_CHECK_EQ(tile.block_tokens % kUnitTokens, 0u);
  KV_CHECK_EQ(kChunkTokens % tile.block_tokens, 0u);
  KV_CHECK(!IsStaged(tile.k_type) || tile.own_k != nullptr);
}

// Where a tile's units lie; made once, since a division costs as much as a unit's lookup.
struct UnitFinder {
  explicit UnitFinder(const AttentionTile& tile)
      : block_shift(std::countr_zero(tile.block_tokens)),
        k_offset(tile.k_offset),
        v_offset(tile.v_offset),
        k_bytes(KUnitBytes(tile.k_type, tile.head_dim)),
        v_bytes(VUnitBytes(tile.v_type, tile.head_dim)) {}

  struct Unit {
    const uint16_t* k;
    const uint16_t* v;
  };
  Unit At(const AttentionRow& row, uint32_t position) const {
    const std::byte* block = row.blocks[position >> block_shift];
    KV_CHECK(block != nullptr);
    const size_t unit = (position & ((1u << block_shift) - 1)) / kUnitTokens;
    return {reinterpret_cast<const uint16_t*>(block + k_offset + unit * k_bytes),
            reinterpret_cast<const uint16_t*>(block + v_offset + unit * v_bytes)};
  }

  int block_shift;  // A block's tokens divide 256.
  size_t k_offset, v_offset;
  size_t k_bytes, v_bytes;
};

constexpr uint32_t kChunkUnits = kChunkTokens / kUnitTokens;

// By unit of a chunk, bit i: row i sees some of its tokens; row i goes through it with row i - 1;
// row i has f16 keys of it apart from the block.
struct UnitMasks {
  uint64_t seen[kChunkUnits] = {};
  uint64_t linked[kChunkUnits] = {};
  uint64_t own[kChunkUnits] = {};
};

// Rows of one chunk: what they see of it.
struct Visible {
  uint32_t first;
  uint32_t last;  // One past.
};

Visible VisibleIn(const AttentionTile& tile, const AttentionRow& row, uint32_t base) {
  const uint32_t first = std::max(FirstSeen(tile, row.position), base) - base;
  const uint32_t last = row.position < base ? 0 : std::min(row.position - base + 1, kChunkTokens);
  return first < last ? Visible{first, last} : Visible{0, 0};
}

void LinkRow(const AttentionRow& row, uint32_t base, uint64_t bit, UnitMasks& masks) {
  if (row.shared_end <= base) return;
  const uint32_t begin = row.shared_begin <= base ? 0 : row.shared_begin - base;
  const uint32_t end = std::min(row.shared_end - base, kChunkTokens) / kUnitTokens;
  for (uint32_t unit = (begin + kUnitTokens - 1) / kUnitTokens; unit < end; ++unit) {
    masks.linked[unit] |= bit;
  }
}

// Rows of a staged type go through their own unit apart from those that see it quantized.
void PartOwnUnits(const AttentionTile& tile, uint32_t base, UnitMasks& masks) {
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    const uint32_t position = tile.rows[i].position;
    if (position < base || position - base >= kChunkTokens) continue;
    masks.own[(position - base) / kUnitTokens] |= uint64_t{1} << i;
  }
  for (uint32_t unit = 0; unit < kChunkUnits; ++unit) {
    for (uint32_t i = 1; i < tile.row_count; ++i) {
      const bool own = (masks.own[unit] >> i & 1) != 0;
      const bool own_before = (masks.own[unit] >> (i - 1) & 1) != 0;
      if (own == own_before && (!own || tile.own_k[i] == tile.own_k[i - 1])) continue;
      masks.linked[unit] &= ~(uint64_t{1} << i);
    }
  }
}

// Cuts the chunk at `base` into segments, resolving their units; returns how many units. A run of
// linked rows is one segment as long as its extent stays the same from unit to unit.
uint32_t MakeSegments(const AttentionTile& tile, uint32_t base, const UnitMasks& masks,
                      AttentionJob& job) {
  int open[kMaxAttentionRows];  // By the run's first row: its segment, if it reaches unit - 1.
  const UnitFinder finder(tile);
  const uint64_t rows_mask = ~uint64_t{0} >> (kMaxAttentionRows - tile.row_count);
  uint32_t units = 0;
  job.segments = 0;
  for (uint32_t unit = 0; unit < kChunkUnits; ++unit) {
    const bool same_runs = unit > 0 && masks.linked[unit] == masks.linked[unit - 1] &&
                           masks.own[unit] == masks.own[unit - 1];
    const uint64_t heads = ~masks.linked[unit] & rows_mask;  // Of runs.
    for (uint32_t row = 0; row < tile.row_count;) {
      const uint64_t later = row == 63 ? 0 : heads >> (row + 1) << (row + 1);
      const uint32_t end =
          later == 0 ? tile.row_count : static_cast<uint32_t>(std::countr_zero(later));
      const uint64_t run = (end - row == 64 ? ~uint64_t{0} : (uint64_t{1} << (end - row)) - 1)
                           << row;
      const uint64_t seen = masks.seen[unit] & run;
      if (!same_runs) open[row] = -1;
      if (seen == 0) {
        open[row] = -1;
      } else {
        if (open[row] < 0) {
          open[row] = job.segments++;
          const size_t place = size_t{row} * kChunkUnits + unit;
          job.segment[open[row]] = {static_cast<int>(row * tile.group),
                                    static_cast<int>((end - row) * tile.group),
                                    static_cast<int>(unit),
                                    0,
                                    job.k + place,
                                    job.v + place,
                                    (masks.own[unit] >> row & 1) != 0};
        }
        const int reader_index = __builtin_ctzll(seen);
        const AttentionRow& reader = tile.rows[reader_index];
        const size_t place = size_t{row} * kChunkUnits + unit;
        const UnitFinder::Unit found = finder.At(reader, base + unit * kUnitTokens);
        job.k[place] = job.segment[open[row]].own
                           ? reinterpret_cast<const uint16_t*>(tile.own_k[reader_index])
                           : found.k;
        job.v[place] = found.v;
        ++job.segment[open[row]].units;
        units += 2;
      }
      row = end;
    }
  }
  return units;
}

// What row i's heads see of the chunk.
Visible PlaceRow(const AttentionTile& tile, uint32_t i, uint32_t base, AttentionJob& job) {
  const Visible visible = VisibleIn(tile, tile.rows[i], base);
  for (uint32_t g = 0; g < tile.group; ++g) {
    const uint32_t row = i * tile.group + g;
    job.q[row] = tile.q[i] + size_t{g} * tile.head_dim;
    job.begin[row] = static_cast<int>(visible.first);
    job.end[row] = static_cast<int>(visible.last);
  }
  return visible;
}

// The rows of the chunk at `base` and their segments; returns how many units.
uint32_t PlaceRows(const AttentionTile& tile, uint32_t base, AttentionJob& job) {
  UnitMasks masks;
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    const Visible visible = PlaceRow(tile, i, base, job);
    const uint64_t bit = uint64_t{1} << i;
    for (uint32_t unit = visible.first / kUnitTokens; unit * kUnitTokens < visible.last; ++unit) {
      masks.seen[unit] |= bit;
    }
    if (i > 0) LinkRow(tile.rows[i], base, bit, masks);
  }
  if (IsStaged(tile.k_type)) PartOwnUnits(tile, base, masks);
  return MakeSegments(tile, base, masks, job);
}

// The same for a single row, whose units need no search for runs.
uint32_t PlaceSingleRow(const AttentionTile& tile, uint32_t base, AttentionJob& job) {
  const Visible visible = PlaceRow(tile, 0, base, job);
  const AttentionRow& row = tile.rows[0];
  const UnitFinder finder(tile);
  const int begin = static_cast<int>(visible.first / kUnitTokens);
  const int end = static_cast<int>((visible.last + kUnitTokens - 1) / kUnitTokens);
  for (int unit = begin; unit < end; ++unit) {
    const UnitFinder::Unit found = finder.At(row, base + static_cast<uint32_t>(unit) * kUnitTokens);
    job.k[unit] = found.k;
    job.v[unit] = found.v;
  }
  // What it sees ends with its position, so its own unit is the last.
  const bool own = IsStaged(tile.k_type) && begin < end && row.position - base < kChunkTokens;
  const int group = static_cast<int>(tile.group);
  const int stored_end = own ? end - 1 : end;
  job.segments = 0;
  if (begin < stored_end) {
    job.segment[job.segments++] = {
        0, group, begin, stored_end - begin, job.k + begin, job.v + begin, false};
  }
  if (own) {
    job.k[stored_end] = reinterpret_cast<const uint16_t*>(tile.own_k[0]);
    job.segment[job.segments++] = {
        0, group, stored_end, 1, job.k + stored_end, job.v + stored_end, true};
  }
  return static_cast<uint32_t>(end - begin) * 2;
}

// Hints only: units that the next job's first row does not see, or does not hold, are left out.
void ResolveAfter(const AttentionNext& next, AttentionJob& job) {
  std::fill_n(job.after, kChunkUnits, nullptr);
  if (next.tile == nullptr) return;
  const UnitFinder finder(*next.tile);
  const AttentionRow& row = next.tile->rows[0];
  const uint32_t first_seen = FirstSeen(*next.tile, row.position);
  for (uint32_t unit = 0; unit < kChunkUnits; ++unit) {
    const uint32_t position = next.chunk * kChunkTokens + unit * kUnitTokens;
    if (position > row.position) return;
    if (position + kUnitTokens <= first_seen) continue;
    if (row.blocks[position >> finder.block_shift] == nullptr) continue;
    job.after[unit] = finder.At(row, position).k;
  }
}

}  // namespace

ChunkRange ChunksOf(const AttentionTile& tile) {
  ChunkRange range{UINT32_MAX, 0};
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    const uint32_t position = tile.rows[i].position;
    range.begin = std::min(range.begin, FirstSeen(tile, position) / kChunkTokens);
    range.end = std::max(range.end, position / kChunkTokens + 1);
  }
  return range;
}

uint32_t AttendChunk(const AttentionTile& tile, uint32_t chunk, const AttentionState& state,
                     const AttentionNext& next) {
  CheckTile(tile);
  static_assert(AttentionJob::kRows == kMaxAttentionRows && AttentionJob::kTokens == kChunkTokens &&
                AttentionJob::kUnits == kChunkUnits);
  AttentionJob job;
  job.rows = static_cast<int>(RowsOf(tile));
  job.head_dim = static_cast<int>(tile.head_dim);
  job.scale = tile.scale;
  job.cap = tile.cap;
  job.k_type = tile.k_type;
  job.v_type = tile.v_type;
  job.o = state.o;
  job.max = state.max;
  job.sum = state.sum;
  const uint32_t base = chunk * kChunkTokens;
  const uint32_t units =
      tile.row_count == 1 ? PlaceSingleRow(tile, base, job) : PlaceRows(tile, base, job);
  ResolveAfter(next, job);
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

void FinishAttention(const AttentionTile& tile, const AttentionState& state, float* const* out) {
  const AttentionTable& table = ActiveAttention();
  for (uint32_t i = 0; i < tile.row_count; ++i) {
    for (uint32_t g = 0; g < tile.group; ++g) {
      const size_t row = size_t{i} * tile.group + g;
      table.divide(tile.head_dim, state.o + row * tile.head_dim, state.sum[row],
                   out[i] + size_t{g} * tile.head_dim);
    }
  }
}

size_t AttendScratchFloats(uint32_t row_count, uint32_t group, uint32_t head_dim) {
  const size_t rows = size_t{row_count} * group;
  const size_t padded_rows = (rows + 15) / 16 * 16;
  return 2 * (rows * head_dim + 2 * padded_rows);
}

uint32_t Attend(const AttentionTile& tile, float* scratch, float* const* out,
                const AttentionNext& next) {
  const size_t rows = RowsOf(tile);
  const size_t padded_rows = (rows + 15) / 16 * 16;
  const auto carve = [&](float* from) {
    float* const max = from + rows * tile.head_dim;
    return AttentionState{from, max, max + padded_rows};
  };
  const AttentionState state = carve(scratch);
  const AttentionState right =
      carve(scratch + AttendScratchFloats(tile.row_count, tile.group, tile.head_dim) / 2);
  const ChunkRange chunks = ChunksOf(tile);
  uint32_t units = 0;
  for (uint32_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    const bool last = chunk + 1 == chunks.end;
    units += AttendChunk(tile, chunk, chunk == chunks.begin ? state : right,
                         last ? next : AttentionNext{&tile, chunk + 1});
    if (chunk == chunks.begin) continue;
    MergeAttention(static_cast<uint32_t>(rows), tile.head_dim, right, state);
  }
  FinishAttention(tile, state, out);
  return units;
}

void WriteKv(std::span<const float> k, std::span<const float> v, std::byte* block, size_t k_offset,
             size_t v_offset, uint32_t slot) {
  KV_CHECK_EQ(k.size(), v.size());
  const uint32_t head_dim = static_cast<uint32_t>(k.size());
  const size_t unit = slot / kUnitTokens * KUnitBytes(StoredType::kF16, head_dim);
  WriteK(StoredType::kF16, k, block + k_offset + unit, slot % kUnitTokens);
  WriteV(StoredType::kF16, v, block + v_offset + unit, slot % kUnitTokens);
}

}  // namespace kvasir
