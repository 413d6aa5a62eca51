// What tells the contiguous strategies apart: slots, growth, moves, compaction, shared prefixes.
#include "kv/region_kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"
#include "kv/serve_for_test.h"

namespace kvasir {
namespace {

const BlockHash kRoot{};

std::unique_ptr<KvCache> Make(KvStrategy strategy, uint32_t blocks, uint32_t max_tokens = 1024,
                              uint32_t layers = 1) {
  KvCache::Options options;
  options.strategy = strategy;
  std::vector<uint32_t> full(layers);
  std::iota(full.begin(), full.end(), 2u);
  const uint32_t wide = layers == 1 ? 1 : 16;
  options.layout.groups.push_back(KvGroup{full, wide, 16 * wide, 0});
  options.layout.groups.push_back(KvGroup{{0, 1}, 1, 16, 40});
  options.block_counts = {blocks, blocks};
  options.max_sequences = 8;
  options.max_sequence_tokens = max_tokens;
  return CacheOf(options);
}

uint32_t FirstBlock(const KvCache& cache, SequenceId id) { return Index(cache.table(id, 0).id(0)); }

TEST(StaticKvCache, HasAsManySlotsAsRegionsFit) {
  const auto cache = Make(KvStrategy::kStatic, 27, 100);  // 7 blocks each.
  EXPECT_EQ(cache->block_count(0), 21u);
  EXPECT_EQ(cache->most_tokens_alone(), 100u);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*cache->Open(kRoot, Prompt(i, 3)));
  EXPECT_FALSE(cache->Open(kRoot, Prompt(4, 3)).has_value());
  EXPECT_FALSE(cache->Fork(ids[0]).has_value());
  cache->Close(ids[1]);
  EXPECT_TRUE(cache->Fork(ids[0]).has_value());
  EXPECT_EQ(cache->usage().reserved, cache->usage().total);
}

TEST(StaticKvCache, WithoutOneRegionItSaysWhatIsMissing) {
  KvCache::Options options;
  options.strategy = KvStrategy::kStatic;
  options.layout.groups.push_back(KvGroup{{0}, 1, 16, 0});
  options.memory_bytes = 5 * 1024 + 1000;
  options.max_sequences = 4;
  options.max_sequence_tokens = 96;
  const auto cache = KvCache::Create(options);
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(MessageOf(cache.status()),
            "KV memory of 5120 bytes is too small for one region of 96 tokens, which needs 6144 "
            "bytes; give more memory or a shorter context");
}

TEST(StaticKvCache, TheLongestMatchIsTakenElseTheOldest) {
  const auto cache = Make(KvStrategy::kStatic, 21, 100);
  Serve(*cache, Prompt(1, 50));
  Serve(*cache, Join(Prompt(1, 30), Prompt(2, 50)));  // Takes the first one's slot over.
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 50)), 30u);
  Serve(*cache, Prompt(3, 40));
  Serve(*cache, Prompt(4, 40));
  EXPECT_EQ(Serve(*cache, Join(Prompt(1, 30), Prompt(2, 60))), 80u);
  Serve(*cache, Prompt(5, 40));  // The oldest is 3.
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(3, 40)), 0u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(4, 40)), 39u);
  // Of equal matches that which loses least.
  const auto two = Make(KvStrategy::kStatic, 14, 100);
  const auto a = two->Open(kRoot, Prompt(1, 90));
  const auto b = two->Open(kRoot, Prompt(1, 30));
  ASSERT_TRUE(Compute(*two, *a, Prompt(1, 90)) && Compute(*two, *b, Prompt(1, 30)));
  two->Close(*b);
  two->Close(*a);
  EXPECT_EQ(Serve(*two, Join(Prompt(1, 25), Prompt(2, 9))), 25u);
  EXPECT_EQ(two->MatchTokens(kRoot, Prompt(1, 90)), 89u);
}

TEST(DynamicKvCache, AnOpenThatIsGivenUpCostsNothing) {
  for (const KvStrategy strategy :
       {KvStrategy::kStatic, KvStrategy::kDynamic, KvStrategy::kShared}) {
    const auto cache = Make(strategy, 64);
    Serve(*cache, Prompt(1, 90));
    const auto id = cache->Open(kRoot, Join(Prompt(1, 20), Prompt(2, 9)), 300);
    EXPECT_EQ(cache->computed(*id), 20u);
    cache->Close(*id);
    EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 90)), 89u) << KvStrategyName(strategy);
    EXPECT_EQ(cache->counters().evictions[0], 0u);
  }
}

TEST(DynamicKvCache, RegionsAreOfTheLengthNeededAndGrowByHalf) {
  const auto cache = Make(KvStrategy::kDynamic, 64);
  const auto a = cache->Open(kRoot, Prompt(1, 30), 100);
  EXPECT_EQ(cache->table(*a, 0).size(), 7u);
  const auto b = cache->Open(kRoot, Prompt(2, 30));  // Nobody knows how long: a block of room.
  EXPECT_EQ(cache->table(*b, 0).size(), 3u);
  EXPECT_EQ(FirstBlock(*cache, *b), 7u);
  ASSERT_TRUE(Compute(*cache, *b, Prompt(2, 49)));
  EXPECT_EQ(cache->table(*b, 0).size(), 4u);  // In place: what follows is free.
  EXPECT_EQ(cache->counters().moves, 0u);
  const auto c = cache->Open(kRoot, Prompt(3, 30), 64);
  ASSERT_TRUE(Compute(*cache, *b, Prompt(2, 65)));
  EXPECT_EQ(cache->table(*b, 0).size(), 6u);
  EXPECT_EQ(FirstBlock(*cache, *b), 15u);  // Moved behind c.
  EXPECT_EQ(cache->counters().moves, 8u);  // The four that it had filled, of both groups.
  EXPECT_EQ(cache->counters().moved_bytes, 4u * (1024 + 2048));
  EXPECT_DOUBLE_EQ(static_cast<double>(cache->usage().largest_free) /
                       static_cast<double>(cache->usage().total - cache->usage().reserved),
                   43.0 / 47.0);
  cache->Close(*c);
  cache->Close(*a);
}

TEST(DynamicKvCache, AMatchIsTakenOverAndTrimmed) {
  const auto cache = Make(KvStrategy::kDynamic, 64);
  Serve(*cache, Prompt(1, 320));
  EXPECT_EQ(cache->free_blocks(0), 44u);
  EXPECT_EQ(Serve(*cache, Join(Prompt(1, 100), Prompt(2, 30))), 100u);
  EXPECT_EQ(cache->free_blocks(0), 55u);  // 130 tokens.
  // While it runs nobody finds it.
  const auto id = cache->Open(kRoot, Prompt(1, 101));
  EXPECT_EQ(cache->computed(*id), 100u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 101)), 0u);
}

// Four regions of 8 blocks in 40, every second one free: 8 + 8 + 8 in three pieces.
TEST(DynamicKvCache, CompactionMakesRoomForWhatWouldFit) {
  const auto cache = Make(KvStrategy::kDynamic, 40);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(*cache->Open(kRoot, Prompt(i, 120), 128));
    ASSERT_TRUE(Compute(*cache, ids.back(), Prompt(i, 120)));
  }
  cache->Close(ids[0]);
  cache->Close(ids[2]);
  cache->EvictAll();
  const uint64_t set_bytes = cache->usage().total / 40;
  EXPECT_EQ(cache->usage().largest_free, 8 * set_bytes);
  const auto big = cache->Open(kRoot, Prompt(9, 300), 320);
  ASSERT_TRUE(big.has_value());
  EXPECT_GT(cache->counters().moves, 0u);
  ASSERT_TRUE(Compute(*cache, *big, Prompt(9, 320)));
  for (const int i : {1, 3}) CheckDigests(*cache, ids[i], PrefixDigests(0, Prompt(i, 120)));
  EXPECT_FALSE(cache->Open(kRoot, Prompt(8, 60), 100).has_value()) << "that does not fit";
}

// A choice is forked while the others of the step have their new KV, but have not committed it.
TEST(DynamicKvCache, WhatIsWrittenButNotCommittedIsMovedToo) {
  const auto cache = Make(KvStrategy::kDynamic, 24);
  const auto hole = cache->Open(kRoot, Prompt(1, 20), 128);
  const auto id = cache->Open(kRoot, Prompt(2, 30), 80);
  ASSERT_TRUE(Compute(*cache, *id, Prompt(2, 30)));
  cache->Close(*hole);
  const std::vector<TokenId> tokens = Prompt(2, 70);
  const std::vector<uint64_t> digests = PrefixDigests(0, tokens);
  ASSERT_TRUE(cache->Reserve(*id, 40));
  WriteDigests(*cache, *id, std::span(digests).subspan(30));
  ASSERT_TRUE(cache->Open(kRoot, Prompt(3, 20), 16 * 17).has_value());
  EXPECT_GT(cache->counters().moves, 0u);
  cache->Commit(*id, std::span(tokens).subspan(30));
  CheckDigests(*cache, *id, digests);
}

// Blocks of 8 MiB: one region of a few of them is more than a call may move.
TEST(DynamicKvCache, OneCallMovesABoundedNumberOfBytesWhileOthersRun) {
  const auto cache = Make(KvStrategy::kDynamic, 40, 1024, /*layers=*/32);
  const uint64_t set_bytes = cache->usage().total / 40;
  ASSERT_GT(4 * set_bytes, RegionKvCache::kMaxCompactionBytes / 2);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 10; ++i) {
    ids.push_back(*cache->Open(kRoot, Prompt(i, 2), 64));  // 4 blocks each, one filled.
    const TokenId token = Prompt(i, 1)[0];
    ASSERT_TRUE(cache->Reserve(ids.back(), 33));  // Three will count as filled.
    cache->Commit(ids.back(), std::vector<TokenId>(33, token));
    if (i == 7) break;
  }
  for (const int i : {0, 2, 4, 6}) cache->Close(ids[i]);
  cache->EvictAll();
  int calls = 0;
  uint64_t before = 0;
  while (!cache->Open(kRoot, Prompt(30, 200), 16 * 24).has_value()) {
    ASSERT_LT(++calls, 10);
    const uint64_t moved = cache->counters().moved_bytes - before;
    before = cache->counters().moved_bytes;
    EXPECT_GT(moved, 0u) << "no progress";
    EXPECT_LT(moved, RegionKvCache::kMaxCompactionBytes + 4 * set_bytes);
    cache->CheckInvariants();
  }
  EXPECT_GT(calls, 0);
}

TEST(DynamicKvCache, AloneItGrowsToTheLastBlock) {
  for (const KvStrategy strategy : {KvStrategy::kDynamic, KvStrategy::kShared}) {
    const auto cache = Make(strategy, 24);
    for (int i = 0; i < 6; ++i) Serve(*cache, Prompt(i, 64));  // Full of finished ones.
    const auto id = cache->Open(kRoot, Prompt(3, 60));
    for (uint32_t end = 64; end <= 384; end += 16) {
      ASSERT_TRUE(Compute(*cache, *id, Join(Prompt(3, 60), Prompt(7, end - 60))));
    }
    EXPECT_EQ(cache->most_tokens_alone(), 384u);
    EXPECT_EQ(cache->counters().failed_reserves, 0u);
  }
}

TEST(SharedKvCache, ARunningPrefixIsSharedByWholeBlocks) {
  const auto cache = Make(KvStrategy::kShared, 64);
  const auto& regions = static_cast<const RegionKvCache&>(*cache);
  const auto a = cache->Open(kRoot, Prompt(1, 100), 112);
  ASSERT_TRUE(Compute(*cache, *a, Prompt(1, 100)));
  const std::vector<TokenId> other = Join(Prompt(1, 90), Prompt(2, 10));
  const auto b = cache->Open(kRoot, other, 128);
  EXPECT_EQ(cache->computed(*b), 90u);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(cache->table(*a, 0).id(i), cache->table(*b, 0).id(i));
    EXPECT_EQ(regions.references(cache->table(*a, 0).id(i)), 2u);
  }
  EXPECT_NE(cache->table(*a, 0).id(5), cache->table(*b, 0).id(5));
  EXPECT_EQ(cache->counters().copies, 2u);  // The block that they share in part, of both groups.
  EXPECT_EQ(cache->free_blocks(0), 64u - 7 - 3);
  ASSERT_TRUE(Compute(*cache, *b, other));
  CheckDigests(*cache, *a, PrefixDigests(0, Prompt(1, 100)));
  // The owner of the region goes: what the other one has stays, the rest is free.
  cache->Close(*a);
  EXPECT_EQ(cache->idle_blocks(0), 2u);
  cache->EvictAll();
  cache->CheckInvariants();
  EXPECT_EQ(cache->free_blocks(0), 64u - 5 - 3);
  CheckDigests(*cache, *b, PrefixDigests(0, other));
  EXPECT_EQ(regions.references(cache->table(*b, 0).id(0)), 1u);
  cache->Close(*b);
  cache->EvictAll();
  EXPECT_EQ(cache->free_blocks(0), 64u);
}

TEST(SharedKvCache, ForksShareAndAMovedRegionTakesItsReadersAlong) {
  const auto cache = Make(KvStrategy::kShared, 64);
  const auto a = cache->Open(kRoot, Prompt(1, 40));
  ASSERT_TRUE(Compute(*cache, *a, Prompt(1, 40)));
  const auto b = cache->Fork(*a);
  EXPECT_EQ(cache->table(*b, 0).id(1), cache->table(*a, 0).id(1));
  EXPECT_NE(cache->table(*b, 0).id(2), cache->table(*a, 0).id(2));
  const uint32_t before = FirstBlock(*cache, *a);
  const std::vector<TokenId> longer = Join(Prompt(1, 40), Prompt(2, 100));
  ASSERT_TRUE(Compute(*cache, *a, longer));  // No room behind it: it moves.
  EXPECT_NE(FirstBlock(*cache, *a), before);
  EXPECT_EQ(FirstBlock(*cache, *b), FirstBlock(*cache, *a));
  ASSERT_TRUE(Compute(*cache, *b, Join(Prompt(1, 40), Prompt(3, 60))));
  CheckDigests(*cache, *a, PrefixDigests(0, longer));
}

TEST(SharedKvCache, WhatAnotherOneHoldsTooIsKeptOnce) {
  const auto cache = Make(KvStrategy::kShared, 64);
  Serve(*cache, Prompt(1, 64));
  EXPECT_EQ(Serve(*cache, Prompt(1, 64)), 63u);
  EXPECT_EQ(cache->idle_blocks(0), 4u);
  EXPECT_EQ(Serve(*cache, Prompt(1, 200)), 64u);  // Goes on: the same entry.
  EXPECT_EQ(cache->idle_blocks(0), 13u);
  EXPECT_EQ(cache->usage().used, 200u * cache->layout().bytes_per_token());
  BlockHash other;
  other.bytes[0] = 1;
  EXPECT_EQ(cache->MatchTokens(other, Prompt(1, 64)), 0u);
  EXPECT_EQ(cache->ClearCached(other, {}, 1000).blocks, 0u);
  EXPECT_EQ(cache->ClearCached(kRoot, {}, 1000).blocks, 13u);
  EXPECT_EQ(cache->free_blocks(0), 64u);
}

TEST(RegionKvCache, KeptSequencesAreListedInPagesToTheirOwnTenant) {
  for (const KvStrategy strategy :
       {KvStrategy::kStatic, KvStrategy::kDynamic, KvStrategy::kShared}) {
    SCOPED_TRACE(std::string(KvStrategyName(strategy)));
    const auto cache = Make(strategy, 64, 128);
    BlockHash other;
    other.bytes[0] = 1;
    cache->AdvanceTo(500);
    for (int i = 1; i <= 3; ++i) Serve(*cache, Prompt(i, 20 * static_cast<uint32_t>(i)));
    cache->AdvanceTo(900);
    EXPECT_EQ(Serve(*cache, Prompt(2, 60)), 40u);
    std::vector<KvCachedEntry> entries;
    KvCursor cursor;
    for (std::optional<KvCursor> next = cursor; next.has_value();) {
      std::vector<KvCachedEntry> page(2);
      const KvPage got = cache->ListCached(kRoot, *next, page);
      entries.insert(entries.end(), page.begin(), page.begin() + got.count);
      next = got.next;
    }
    ASSERT_EQ(entries.size(), 3u);
    uint32_t found = 0;
    for (const KvCachedEntry& entry : entries) {
      std::vector<TokenId> tokens(100);
      tokens.resize(cache->CachedTokens(kRoot, entry.hash, tokens));
      EXPECT_EQ(tokens.size(), entry.tokens);
      EXPECT_EQ(cache->CachedTokens(other, entry.hash, tokens), 0u) << "another tenant's";
      if (tokens != Prompt(2, 60)) continue;
      ++found;
      EXPECT_EQ(entry.uses, 2u);
      EXPECT_EQ(entry.last_use, 900);
      const uint32_t blocks = strategy == KvStrategy::kStatic ? 8 : 4;
      EXPECT_EQ(entry.bytes, blocks * 16 * cache->layout().bytes_per_token());
      EXPECT_FALSE(entry.busy);
    }
    EXPECT_EQ(found, 1u);
    std::vector<KvCachedEntry> page(9);
    EXPECT_EQ(cache->ListCached(other, {}, page).count, 0u);
    EXPECT_EQ(cache->PinCached(kRoot, Prompt(2, 60), 10'000).outcome, KvPinOutcome::kUnsupported);
  }
}

TEST(RegionKvCache, TheBranchThatAPromptLeavesIsTold) {
  const auto cache = Make(KvStrategy::kDynamic, 64);
  Serve(*cache, Prompt(1, 60));
  const auto left = cache->DivergedAt(kRoot, Join(Prompt(1, 33), Prompt(2, 9)));
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->at, 33u);
  EXPECT_EQ(left->cached_count, 16u);
  EXPECT_EQ(left->cached[0], Prompt(1, 34).back());
  EXPECT_FALSE(cache->DivergedAt(kRoot, Prompt(1, 70)).has_value());
  EXPECT_FALSE(cache->DivergedAt(kRoot, Prompt(1, 20)).has_value());
  // What followed these tokens before is guessed to follow again.
  const auto id = cache->Open(kRoot, Join(Prompt(3, 1), Prompt(4, 1)));
  std::vector<TokenId> out(5);
  EXPECT_EQ(cache->computed(*id), 0u);
  EXPECT_EQ(cache->Continuation(*id, Prompt(1, 20), out), 5u);
  EXPECT_EQ(out[0], Prompt(1, 21).back());
  EXPECT_EQ(cache->Continuation(*id, Join(Prompt(1, 20), Prompt(2, 1)), out), 0u);
}

}  // namespace
}  // namespace kvasir
