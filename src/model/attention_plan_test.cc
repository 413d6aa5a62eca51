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

void CheckPlan(const AttentionPlan& plan, const AttentionPlan::Options& options,
               const std::vector<Row>& rows) {
  // (row, head) -> times computed whole, and the chunks computed one by one.
  std::map<std::pair<uint32_t, uint32_t>, int> whole;
  std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, uint32_t>> states;
  std::set<uint32_t> used_states;
  for (const AttentionPiece& piece : plan.pieces()) {
    ASSERT_GE(piece.row_count, 1u);
    ASSERT_LE(piece.row_count * options.group, std::max(kMaxAttentionRows, options.group));
    for (uint32_t i = 0; i < piece.row_count; ++i) {
      const Row& row = rows.at(piece.first_row + i);
      ASSERT_EQ(row.sequence, piece.sequence) << "a piece crosses sequences";
      ASSERT_EQ(row.position, piece.position + i);
      const auto key = std::make_pair(piece.first_row + i, piece.kv_head);
      if (piece.chunk == kWholeRange) {
        ++whole[key];
      } else {
        ASSERT_EQ(piece.row_count, 1u);
        ASSERT_LT(piece.state, plan.max_states());
        ASSERT_TRUE(used_states.insert(piece.state).second) << "state slot used twice";
        ASSERT_TRUE(states[key].emplace(piece.chunk, piece.state).second);
      }
    }
  }
  for (uint32_t r = 0; r < rows.size(); ++r) {
    const std::set<uint32_t> seen = ChunksSeen(rows[r].position, options.window);
    for (uint32_t head = 0; head < options.kv_heads; ++head) {
      const auto key = std::make_pair(r, head);
      const SplitRow& split = plan.split(r);
      if (split.chunk_count == 0) {
        ASSERT_EQ(whole[key], 1);
        ASSERT_TRUE(states[key].empty());
        continue;
      }
      ASSERT_EQ(whole[key], 0);
      ASSERT_EQ(split.chunk_count, seen.size());
      uint32_t state = split.first_state + head * split.chunk_count;
      for (const uint32_t chunk : seen) ASSERT_EQ(states[key].at(chunk), state++);
    }
  }
}

TEST(AttentionPlanProperty, EveryRowAndHeadIsComputedExactlyOnce) {
  for (const uint64_t seed : TestSeeds(300)) {
    SCOPED_TRACE(testing::Message() << "KVASIR_TEST_SEED=" << seed);
    Rng rng(seed);
    AttentionPlan::Options options{};
    options.kv_heads = static_cast<uint32_t>(rng.Between(1, 4));
    options.group = static_cast<uint32_t>(rng.Between(1, 9));
    options.window = rng.Below(2) == 0 ? 0 : static_cast<uint32_t>(rng.Between(1, 700));
    options.worker_count = static_cast<uint32_t>(rng.Between(1, 5));
    options.max_rows = 128;
    options.context_length = 4096;
    AttentionPlan plan(options);
    for (int build = 0; build < 5; ++build) {
      std::vector<std::vector<TokenId>> tokens;
      Batch batch;
      std::vector<Row> rows;
      const uint32_t sequences = static_cast<uint32_t>(rng.Between(1, 6));
      for (uint32_t s = 0; s < sequences; ++s) {
        tokens.emplace_back(rng.Below(2) == 0 ? 1 : rng.Between(1, 20));
      }
      for (uint32_t s = 0; s < sequences; ++s) {
        BatchSequence sequence;
        sequence.tokens = tokens[s];
        sequence.start = static_cast<uint32_t>(rng.Below(4096 - 20));
        batch.sequences.push_back(sequence);
        for (uint32_t i = 0; i < tokens[s].size(); ++i) rows.push_back({s, sequence.start + i});
      }
      plan.Build(batch);
      CheckPlan(plan, options, rows);
      if (HasFatalFailure()) return;
    }
  }
}

// One sequence decoding deep in its context must occupy all workers.
TEST(AttentionPlan, ALongSingleRowIsCutByChunk) {
  AttentionPlan plan({/*kv_heads=*/1, /*group=*/4, /*window=*/0, /*worker_count=*/2,
                      /*max_rows=*/16, /*context_length=*/8192});
  const std::vector<TokenId> token(1);
  Batch batch;
  batch.sequences.emplace_back();
  batch.sequences[0].tokens = token;
  batch.sequences[0].start = 8000;
  plan.Build(batch);
  EXPECT_EQ(plan.pieces().size(), 8000 / kChunkTokens + 1);
}

}  // namespace
}  // namespace kvasir
