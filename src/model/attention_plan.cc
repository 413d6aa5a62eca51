#include "model/attention_plan.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace kvasir {
namespace {

uint32_t RowCount(const BatchSequence& sequence) {
  return static_cast<uint32_t>(sequence.tokens.size());
}

}  // namespace

void OrderByPrefix(const Batch& batch, std::vector<uint32_t>& order) {
  order.resize(batch.sequences.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  // Pointers are compared only for equality of prefixes: where unequal ones go changes no result,
  // and ties keep the batch's order.
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const std::span<std::byte* const> x = batch.sequences[a].blocks[0];
    const std::span<std::byte* const> y = batch.sequences[b].blocks[0];
    const auto at = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    if (at.first == x.end() || at.second == y.end()) {
      return x.size() != y.size() ? x.size() < y.size() : a < b;
    }
    return std::less<const std::byte*>()(*at.first, *at.second);
  });
}

AttentionPlan::AttentionPlan(const Options& options) : options_(options) {
  KV_CHECK_GT(options.group, 0u);
  KV_CHECK_LE(options.group, kMaxAttentionRows);
  pieces_wanted_ = options.worker_count == 1 ? 1 : options.worker_count * 4;
  const uint32_t visible = options.window == 0
                               ? options.context_length
                               : std::min(options.context_length, options.window + kChunkTokens);
  // Room for the longest single rows, or for tiles of many rows that are not quite as long; a tile
  // that finds no room is not cut.
  max_states_ = options.worker_count == 1
                    ? 0
                    : 8 * pieces_wanted_ * ((visible + kChunkTokens - 1) / kChunkTokens + 1);
  pieces_.reserve(static_cast<size_t>(options.max_rows) * options.kv_heads + max_states_);
  tiles_.reserve(options.max_rows);
  costs_.reserve(options.max_rows);
  rows_.reserve(options.max_rows);
  batch_rows_.reserve(options.max_rows);
  first_rows_.reserve(options.max_rows);
}

uint32_t AttentionPlan::FirstSeen(uint32_t position) const {
  return options_.window == 0 || position < options_.window ? 0 : position + 1 - options_.window;
}

// How many rows of a sequence go into one tile.
uint32_t AttentionPlan::TileRows(const BatchSequence& sequence, uint32_t total_rows) const {
  const uint32_t count = RowCount(sequence);
  if (count <= std::min(kShortRows, MostRows())) return count;
  const uint32_t chunks = (sequence.start + count - FirstSeen(sequence.start)) / kChunkTokens + 1;
  const uint32_t fair = total_rows * options_.kv_heads * chunks / pieces_wanted_;
  const uint32_t most = std::clamp(fair, 1u, MostRows());
  const uint32_t tiles = (count + most - 1) / most;
  return (count + tiles - 1) / tiles;
}

// A sequence's first row, with what it shares with the sequence before it.
AttentionRow AttentionPlan::SharedRow(const BatchSequence& sequence) const {
  AttentionRow row;
  row.position = sequence.start;
  row.blocks = sequence.blocks[options_.kv_group].data();
  if (previous_ == nullptr) return row;
  const std::byte* const* others = previous_->blocks[options_.kv_group].data();
  const uint32_t seen = std::max(FirstSeen(sequence.start), FirstSeen(previous_->start));
  const uint32_t end = std::min(sequence.start, previous_->start) / options_.block_tokens;
  uint32_t block = seen / options_.block_tokens;
  row.shared_begin = block * options_.block_tokens;
  while (block < end && row.blocks[block] == others[block]) ++block;
  row.shared_end = std::max(block * options_.block_tokens, row.shared_begin);
  return row;
}

void AttentionPlan::AddSequence(const Batch& batch, uint32_t index, uint32_t first_batch_row,
                                uint32_t total_rows) {
  const BatchSequence& sequence = batch.sequences[index];
  const uint32_t count = RowCount(sequence);
  const uint32_t tile_rows = TileRows(sequence, total_rows);
  AttentionRow first = SharedRow(sequence);
  const bool joins = tile_rows >= count && first.shared_end > first.shared_begin &&
                     tiles_.back().row_count + count <= MostRows();
  if (!joins) first.shared_begin = first.shared_end = 0;
  if (tile_rows < count) one_tile_each_ = false;
  for (uint32_t i = 0; i < count; ++i) {
    if (i % tile_rows == 0 && !joins) {
      tiles_.emplace_back().first_row = static_cast<uint32_t>(rows_.size());
    }
    AttentionRow row = first;
    row.position += i;
    if (i > 0) {
      row.shared_begin = 0;
      row.shared_end = kWholeSequence;
    }
    rows_.push_back(row);
    batch_rows_.push_back(first_batch_row + i);
    ++tiles_.back().row_count;
  }
  previous_ = tile_rows < count ? nullptr : &sequence;
}

// Fills in the chunks, and what one KV head of the tile costs: a row pays for what it sees, and the
// tile as much as four rows for going through the KV.
void AttentionPlan::MeasureTile(PlannedTile& tile, uint64_t* cost) const {
  uint32_t first = UINT32_MAX;
  uint32_t last = 0;
  *cost = 0;
  for (uint32_t i = tile.first_row; i < tile.first_row + tile.row_count; ++i) {
    const uint32_t position = rows_[i].position;
    first = std::min(first, FirstSeen(position));
    last = std::max(last, position);
    *cost += uint64_t{position + 1 - FirstSeen(position)} * options_.group;
  }
  *cost += uint64_t{last + 1 - first} * 4;
  tile.first_chunk = first / kChunkTokens;
  tile.chunk_count = last / kChunkTokens + 1 - tile.first_chunk;
}

void AttentionPlan::AddPieces(uint32_t tile_index, uint64_t cost, uint64_t total_cost,
                              uint32_t* next_state) {
  PlannedTile& tile = tiles_[tile_index];
  const uint64_t states = uint64_t{tile.row_count} * tile.chunk_count * options_.kv_heads;
  const bool cut = options_.worker_count > 1 && tile.chunk_count > 1 &&
                   cost * pieces_wanted_ > total_cost && *next_state + states <= max_states_;
  if (cut) {
    tile.first_state = *next_state;
    tile.first_counter = counter_count_;
    *next_state += static_cast<uint32_t>(states);
    counter_count_ += options_.kv_heads;
  }
  // Runs of half of what a worker's share is made of: long enough to be worth their queries.
  const uint64_t wanted = (cost * pieces_wanted_ * 2 + total_cost - 1) / total_cost;
  const uint32_t runs = static_cast<uint32_t>(std::min<uint64_t>(wanted, tile.chunk_count));
  for (uint32_t head = 0; head < options_.kv_heads; ++head) {
    if (!cut) pieces_.push_back({tile_index, head, kWholeRange, 0, cost});
    for (uint32_t run = 0; cut && run < runs; ++run) {
      const uint32_t begin = run * tile.chunk_count / runs;
      const uint32_t chunks = (run + 1) * tile.chunk_count / runs - begin;
      pieces_.push_back(
          {tile_index, head, tile.first_chunk + begin, chunks, cost * chunks / tile.chunk_count});
    }
  }
}

void AttentionPlan::Build(const Batch& batch, std::span<const uint32_t> order) {
  pieces_.clear();
  tiles_.clear();
  costs_.clear();
  rows_.clear();
  batch_rows_.clear();
  first_rows_.clear();
  previous_ = nullptr;
  one_tile_each_ = true;
  counter_count_ = 0;
  uint32_t total_rows = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    first_rows_.push_back(total_rows);
    total_rows += RowCount(sequence);
  }
  for (const uint32_t index : order) AddSequence(batch, index, first_rows_[index], total_rows);
  uint64_t total_cost = 0;
  for (PlannedTile& tile : tiles_) {
    MeasureTile(tile, &costs_.emplace_back());
    total_cost += costs_.back() * options_.kv_heads;
  }
  uint32_t next_state = 0;
  for (uint32_t i = 0; i < tiles_.size(); ++i) AddPieces(i, costs_[i], total_cost, &next_state);
  // A total order, so that the same batch gives the same plan.
  std::sort(pieces_.begin(), pieces_.end(), [](const AttentionPiece& a, const AttentionPiece& b) {
    if (a.cost != b.cost) return a.cost > b.cost;
    if (a.tile != b.tile) return a.tile < b.tile;
    return a.kv_head != b.kv_head ? a.kv_head < b.kv_head : a.chunk < b.chunk;
  });
}

}  // namespace kvasir
