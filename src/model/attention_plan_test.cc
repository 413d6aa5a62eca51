#include "model/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/rng.h"
#include "kernels/attention.h"

namespace kvasir {
namespace {

struct Row {
  uint32_t sequence;
  uint32_t position;
};

// Chunks that a row sees, from the definition.
std::set<uint32_t> ChunksSeen(uint32_t position, uint32_t window) {
  std::set<uint32_t> chunks;
  const uint32_t first = window == 0 || position < window ? 0 : position - window + 1;
  for (uint32_t p = first; p <= position; ++p) chunks.insert(p / kChunkTokens);
  return chunks;
}

// Blocks of a sequence as addresses that are never followed: `shared` of another's, then its own.
std::vector<std::byte*> Blocks(uint32_t count, const std::vector<std::byte*>& other,
                               uint32_t shared, uintptr_t* next) {
  std::vector<std::byte*> blocks(other.begin(), other.begin() + shared);
  while (blocks.size() < count) blocks.push_back(reinterpret_cast<std::byte*>((*next)++ * 64));
  return blocks;
}

// Every row and KV head is computed exactly once: whole, or in each chunk that some row of its tile
// sees, each into a state of its own.
void CheckCover(const AttentionPlan& plan, const AttentionPlan::Options& options,
                const std::vector<Row>& rows) {
  std::map<std::pair<uint32_t, uint32_t>, int> whole;  // (tile, head)
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint32_t>> chunks;
  std::set<uint32_t> used_states;
  uint64_t last_cost = UINT64_MAX;
  for (const AttentionPiece& piece : plan.pieces()) {
    ASSERT_LE(piece.cost, last_cost);
    last_cost = piece.cost;
    const auto key = std::make_pair(piece.tile, piece.kv_head);
    const PlannedTile& tile = plan.tiles().at(piece.tile);
    if (piece.chunk == kWholeRange) {
      ++whole[key];
      continue;
    }
    ASSERT_TRUE(tile.is_cut());
    ASSERT_LT(tile.first_counter + piece.kv_head, plan.counter_count());
    ASSERT_GE(piece.chunks, 1u);
    for (uint32_t chunk = piece.chunk; chunk < piece.chunk + piece.chunks; ++chunk) {
      ASSERT_TRUE(piece.computes(chunk));
      ASSERT_TRUE(chunks[key].insert(chunk).second);
      for (uint32_t i = 0; i < tile.row_count; ++i) {
        const uint32_t state = tile.state(piece.kv_head, chunk) + i;
        ASSERT_LT(state, plan.max_states());
        ASSERT_TRUE(used_states.insert(state).second) << "state slot used twice";
      }
    }
    ASSERT_FALSE(piece.computes(piece.chunk + piece.chunks));
    ASSERT_FALSE(piece.computes(piece.chunk - 1));
  }
  std::set<uint32_t> placed;
  for (uint32_t t = 0; t < plan.tiles().size(); ++t) {
    const PlannedTile& tile = plan.tiles()[t];
    ASSERT_GE(tile.row_count, 1u);
    ASSERT_LE(tile.row_count * options.group, std::max(kMaxAttentionRows, options.group));
    std::set<uint32_t> seen;
    for (uint32_t i = tile.first_row; i < tile.first_row + tile.row_count; ++i) {
      const uint32_t row = plan.batch_rows().at(i);
      ASSERT_TRUE(placed.insert(row).second) << "a row in two tiles";
      ASSERT_EQ(plan.rows()[i].position, rows.at(row).position);
      for (const uint32_t c : ChunksSeen(rows[row].position, options.window)) seen.insert(c);
    }
    ASSERT_EQ(tile.first_chunk, *seen.begin());
    ASSERT_EQ(tile.first_chunk + tile.chunk_count, *seen.rbegin() + 1);
    for (uint32_t head = 0; head < options.kv_heads; ++head) {
      const auto key = std::make_pair(t, head);
      ASSERT_EQ(whole[key], tile.is_cut() ? 0 : 1);
      ASSERT_EQ(chunks[key].size(), tile.is_cut() ? tile.chunk_count : 0);
    }
  }
  ASSERT_EQ(placed.size(), rows.size());
}

// What rows of a tile are said to share lies at the same addresses, and whatever two neighbours of
// a tile have in common is said.
void CheckSharing(const AttentionPlan& plan, const AttentionPlan::Options& options,
                  const Batch& batch, const std::vector<Row>& rows) {
  std::map<uint32_t, uint32_t> tiles_of;  // By sequence.
  for (const PlannedTile& tile : plan.tiles()) {
    std::set<uint32_t> sequences;
    for (uint32_t i = 0; i < tile.row_count; ++i) {
      const uint32_t at = tile.first_row + i;
      const Row& row = rows[plan.batch_rows()[at]];
      const AttentionRow& planned = plan.rows()[at];
      ASSERT_EQ(planned.blocks, batch.sequences[row.sequence].blocks[0].data());
      sequences.insert(row.sequence);
      if (i == 0) continue;
      const Row& before = rows[plan.batch_rows()[at - 1]];
      if (planned.shared_end == kWholeSequence) {
        ASSERT_EQ(row.sequence, before.sequence);
        ASSERT_EQ(row.position, before.position + 1);
        continue;
      }
      ASSERT_NE(row.sequence, before.sequence);
      ASSERT_LE(planned.shared_end, std::min(row.position, before.position));
      const std::byte* const* others = plan.rows()[at - 1].blocks;
      for (uint32_t p = planned.shared_begin; p < planned.shared_end; ++p) {
        ASSERT_EQ(planned.blocks[p / options.block_tokens], others[p / options.block_tokens]);
      }
      const uint32_t end = planned.shared_end / options.block_tokens;
      if ((end + 1) * options.block_tokens <= std::min(row.position, before.position)) {
        ASSERT_NE(planned.blocks[end], others[end]);
      }
    }
    for (const uint32_t sequence : sequences) ++tiles_of[sequence];
  }
  bool one_each = true;
  for (const auto& [sequence, tiles] : tiles_of) one_each = one_each && tiles == 1;
  if (plan.one_tile_each()) {
    ASSERT_TRUE(one_each);
  }
}

TEST(AttentionPlanProperty, EveryRowAndHeadIsComputedExactlyOnce) {
  for (const uint64_t seed : TestSeeds(300)) {
    SCOPED_TRACE(testing::Message() << "KVASIR_TEST_SEED=" << seed);
    Rng rng(seed);
    AttentionPlan::Options options;
    options.kv_heads = static_cast<uint32_t>(rng.Between(1, 4));
    options.group = static_cast<uint32_t>(rng.Between(1, 9));
    options.window = rng.Below(2) == 0 ? 0 : static_cast<uint32_t>(rng.Between(1, 700));
    options.worker_count = static_cast<uint32_t>(rng.Between(1, 5));
    options.max_rows = 256;
    options.context_length = 4096;
    options.block_tokens = 16u << rng.Below(4);
    AttentionPlan plan(options);
    std::vector<uint32_t> order;
    for (int build = 0; build < 5; ++build) {
      Batch batch;
      std::vector<Row> rows;
      uintptr_t next = 1;
      const uint32_t sequences = static_cast<uint32_t>(rng.Between(1, 12));
      std::vector<std::vector<TokenId>> tokens(sequences);
      std::vector<std::vector<std::byte*>> blocks(sequences);
      for (uint32_t s = 0; s < sequences; ++s) {
        tokens[s].resize(rng.Below(2) == 0 ? 1 : rng.Between(1, 20));
        BatchSequence sequence;
        sequence.tokens = tokens[s];
        sequence.start = static_cast<uint32_t>(rng.Below(4096 - 20));
        const uint32_t count = sequence.start / options.block_tokens + 3;
        uint32_t shared = 0;
        const size_t other = s == 0 ? 0 : rng.Below(s);
        if (s > 0 && rng.Below(3) != 0) {
          const uint32_t start = std::min(sequence.start, batch.sequences[other].start);
          shared = static_cast<uint32_t>(rng.Below(start / options.block_tokens + 1));
        }
        blocks[s] = Blocks(count, blocks[other], shared, &next);
        sequence.blocks[0] = blocks[s];
        batch.sequences.push_back(sequence);
        for (uint32_t i = 0; i < tokens[s].size(); ++i) rows.push_back({s, sequence.start + i});
      }
      OrderByPrefix(batch, order);
      plan.Build(batch, order);
      CheckCover(plan, options, rows);
      if (HasFatalFailure()) return;
      CheckSharing(plan, options, batch, rows);
      if (HasFatalFailure()) return;
    }
  }
}

// One sequence decoding deep in its context must occupy all workers, evenly.
TEST(AttentionPlan, ALongSingleRowIsCutIntoRunsOfChunks) {
  AttentionPlan::Options options;
  options.group = 4;
  options.worker_count = 2;
  options.max_rows = 16;
  options.context_length = 8192;
  AttentionPlan plan(options);
  const std::vector<TokenId> token(1);
  uintptr_t next = 1;
  const std::vector<std::byte*> blocks = Blocks(501, {}, 0, &next);
  Batch batch;
  batch.sequences.emplace_back();
  batch.sequences[0].tokens = token;
  batch.sequences[0].start = 8000;
  batch.sequences[0].blocks[0] = blocks;
  plan.Build(batch, std::vector<uint32_t>{0});
  ASSERT_GE(plan.pieces().size(), 8u);
  uint32_t chunks = 0;
  for (const AttentionPiece& piece : plan.pieces()) {
    EXPECT_LE(plan.pieces().front().chunks - piece.chunks, 1u);
    chunks += piece.chunks;
  }
  EXPECT_EQ(chunks, 8000 / kChunkTokens + 1);
  EXPECT_LE(plan.pieces().front().chunks * 8, chunks);
}

// Sixteen sequences over one prefix go through it in one tile, whatever their order in the batch.
TEST(AttentionPlan, SequencesOverOnePrefixMakeOneTile) {
  AttentionPlan::Options options;
  options.kv_heads = 3;
  options.group = 3;
  options.worker_count = 2;
  options.max_rows = 64;
  options.context_length = 8192;
  AttentionPlan plan(options);
  const std::vector<TokenId> token(1);
  uintptr_t next = 1;
  const std::vector<std::byte*> prefix = Blocks(125, {}, 0, &next);
  std::vector<std::vector<std::byte*>> blocks;
  Batch batch;
  for (uint32_t s = 0; s < 20; ++s) {
    blocks.push_back(Blocks(130, prefix, s % 5 == 4 ? 0 : 125, &next));
    BatchSequence sequence;
    sequence.tokens = token;
    sequence.start = 2000 + s;
    sequence.blocks[0] = blocks.back();
    batch.sequences.push_back(sequence);
  }
  std::vector<uint32_t> order;
  OrderByPrefix(batch, order);
  plan.Build(batch, order);
  std::multiset<uint32_t> sizes;
  for (const PlannedTile& tile : plan.tiles()) sizes.insert(tile.row_count);
  EXPECT_EQ(sizes, (std::multiset<uint32_t>{1, 1, 1, 1, 16}));
  EXPECT_TRUE(plan.one_tile_each());
}

}  // namespace
}  // namespace kvasir
