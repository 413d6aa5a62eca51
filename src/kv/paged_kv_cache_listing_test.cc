#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "kv/serve_for_test.h"

namespace kvasir {
namespace {

const BlockHash kRoot{};

BlockHash OtherRoot() {
  BlockHash other;
  other.bytes[0] = 1;
  return other;
}

std::unique_ptr<KvCache> Make(uint32_t blocks, uint32_t window = 0) {
  KvCache::Options options;
  options.layout.groups.push_back(KvGroup{{0}, 1, 16, 0});
  options.block_counts.push_back(blocks);
  if (window > 0) {
    options.layout.groups.push_back(KvGroup{{1, 2}, 1, 16, window});
    options.block_counts.push_back(blocks);
  }
  options.max_sequences = 4;
  options.max_sequence_tokens = 200'000;
  return CacheOf(options);
}

// Without KV, for large caches. False when there was no room.
bool RunThrough(KvCache& cache, const std::vector<TokenId>& tokens, const BlockHash& root = kRoot) {
  const SequenceId id = *cache.Open(root, tokens);
  const uint32_t computed = cache.computed(id);
  const uint32_t left = static_cast<uint32_t>(tokens.size()) - computed;
  const bool room = cache.Reserve(id, left);
  if (room) cache.Commit(id, std::span(tokens).last(left));
  cache.Close(id);
  if (cache.block_count(0) < 1000) cache.CheckInvariants();
  return room;
}

std::vector<KvCachedEntry> List(const KvCache& cache, const BlockHash& root, size_t page_size,
                                int* pages = nullptr) {
  std::vector<KvCachedEntry> all;
  std::vector<KvCachedEntry> page(page_size);
  std::optional<KvCursor> from = KvCursor{};
  while (from.has_value()) {
    const KvPage got = cache.ListCached(root, *from, page);
    all.insert(all.end(), page.begin(), page.begin() + got.count);
    from = got.next;
    if (pages != nullptr) ++*pages;
  }
  return all;
}

TEST(KvListing, SaysWhatIsCachedInPages) {
  const auto cache = Make(64, 32);
  cache->AdvanceTo(1000);
  RunThrough(*cache, Prompt(1, 100));
  RunThrough(*cache, Prompt(2, 20), OtherRoot());
  cache->AdvanceTo(5000);
  RunThrough(*cache, Prompt(1, 60));
  for (const size_t page_size : {1u, 3u, 100u}) {
    const std::vector<KvCachedEntry> entries = List(*cache, kRoot, page_size);
    ASSERT_EQ(entries.size(), 7u);
    BlockHash parent = kRoot;
    for (uint32_t depth = 0; depth < 100; depth += 16) {
      const auto entry = std::find_if(entries.begin(), entries.end(),
                                      [&](const KvCachedEntry& e) { return e.depth == depth; });
      ASSERT_NE(entry, entries.end());
      EXPECT_EQ(entry->parent, parent);
      EXPECT_EQ(entry->tokens, std::min(16u, 100 - depth));
      EXPECT_EQ(entry->bytes, cache->layout().block_bytes(0) + cache->layout().block_bytes(1));
      EXPECT_EQ(entry->uses, depth < 64 ? 2u : 1u);
      EXPECT_EQ(entry->last_use, depth < 64 ? 5000 : 1000);
      EXPECT_FALSE(entry->busy || entry->pinned);
      std::vector<TokenId> tokens(40);
      tokens.resize(cache->CachedTokens(kRoot, entry->hash, tokens));
      const std::vector<TokenId> prompt = Prompt(1, 100);
      EXPECT_EQ(tokens, std::vector<TokenId>(prompt.begin() + depth,
                                             prompt.begin() + depth + entry->tokens));
      EXPECT_EQ(cache->CachedTokens(OtherRoot(), entry->hash, tokens), 0u) << "another tenant's";
      parent = entry->hash;
    }
  }
  EXPECT_EQ(List(*cache, OtherRoot(), 10).size(), 2u);
  const auto id = cache->Open(kRoot, Prompt(1, 33));
  for (const KvCachedEntry& entry : List(*cache, kRoot, 10)) {
    EXPECT_EQ(entry.busy, entry.depth < 32) << entry.depth;
  }
  cache->Close(*id);
  EXPECT_TRUE(List(*cache, BlockHash{{9}}, 10).empty());
  EXPECT_EQ(cache->ListCached(kRoot, KvCursor{UINT64_MAX}, {}).count, 0u);
}

// What is cached from the first page to the last is listed once, whatever happens between pages.
TEST(KvListing, PagesAreBoundedAndMissNothingThatStays) {
  const auto cache = Make(12'000);
  for (int name = 1; name <= 5; ++name) RunThrough(*cache, Prompt(name, 2000 * 16), OtherRoot());
  RunThrough(*cache, Prompt(6, 160));
  int pages = 0;
  EXPECT_EQ(List(*cache, kRoot, 1000, &pages).size(), 10u);
  EXPECT_GE(pages, 3) << "a page of few entries looked at many blocks";
  std::map<BlockHash, int> seen;
  std::vector<KvCachedEntry> page(64);
  std::optional<KvCursor> from = KvCursor{};
  for (int step = 0; from.has_value(); ++step) {
    const KvPage got = cache->ListCached(OtherRoot(), *from, page);
    for (uint32_t i = 0; i < got.count; ++i) ++seen[page[i].hash];
    from = got.next;
    if (step < 40) RunThrough(*cache, Prompt(100 + step, 64 * 16));  // 2,560 blocks: evicts some.
  }
  for (const KvCachedEntry& entry : List(*cache, OtherRoot(), 1000)) {
    EXPECT_EQ(seen[entry.hash], 1);
  }
}

TEST(KvListing, ClearDropsATenantsIdleBlocksInPages) {
  const auto cache = Make(1000);
  for (int name = 1; name <= 4; ++name) RunThrough(*cache, Prompt(name, 100 * 16));
  RunThrough(*cache, Prompt(5, 320), OtherRoot());
  const auto running = cache->Open(kRoot, Prompt(1, 50 * 16 + 1));
  uint32_t cleared = 0;
  std::optional<KvCursor> from = KvCursor{};
  while (from.has_value()) {
    const KvCleared page = cache->ClearCached(kRoot, *from, 7);
    cleared += page.blocks;
    from = page.next;
    cache->CheckInvariants();
  }
  EXPECT_EQ(cleared, 350u);
  EXPECT_EQ(List(*cache, kRoot, 100).size(), 50u) << "a running sequence keeps what it has";
  EXPECT_EQ(List(*cache, OtherRoot(), 100).size(), 20u);
  cache->Close(*running);
  EXPECT_EQ(cache->ClearCached(kRoot, {}, 100'000).blocks, 50u);
  EXPECT_FALSE(cache->ClearCached(BlockHash{{9}}, {}, 10).next.has_value());
}

TEST(KvPins, KeepAPrefixUntilTheirTimeIsOver) {
  for (const uint32_t window : {0u, 40u}) {
    const auto cache = Make(40, window);
    cache->AdvanceTo(1000);
    RunThrough(*cache, Prompt(1, 150));
    const KvPin pin = cache->PinCached(kRoot, Prompt(1, 150), 2000);
    ASSERT_EQ(pin.outcome, KvPinOutcome::kPinned);
    EXPECT_EQ(pin.tokens, 150u);
    EXPECT_EQ(pin.blocks, 10u);
    EXPECT_EQ(pin.limit, 10u);
    cache->CheckInvariants();
    const uint64_t kept = window == 0 ? 0 : cache->layout().block_bytes(1) * 4;
    EXPECT_EQ(cache->usage().pinned, 10 * cache->layout().block_bytes(0) + kept);
    EXPECT_EQ(cache->EvictAll(), 0u);
    for (int name = 2; name < 10; ++name) EXPECT_TRUE(RunThrough(*cache, Prompt(name, 200)));
    EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 151)), 150u) << "evicted while pinned";
    uint32_t ends = 0;
    for (const KvCachedEntry& entry : List(*cache, kRoot, 100)) {
      EXPECT_EQ(entry.pinned, entry.hash == pin.hash || entry.pinned);
      if (entry.pinned_until != 0) {
        ++ends;
        EXPECT_EQ(entry.hash, pin.hash);
        EXPECT_EQ(entry.pinned_until, 2000);
      }
    }
    EXPECT_EQ(ends, 1u);
    cache->AdvanceTo(1999);
    EXPECT_EQ(cache->usage().pinned, 10 * cache->layout().block_bytes(0) + kept);
    // By name, and later: the same pin.
    EXPECT_EQ(cache->PinCached(kRoot, pin.hash, 3000).outcome, KvPinOutcome::kPinned);
    cache->AdvanceTo(2999);
    EXPECT_GT(cache->usage().pinned, 0u);
    cache->AdvanceTo(3000);
    EXPECT_EQ(cache->usage().pinned, 0u);
    cache->CheckInvariants();
    cache->EvictAll();
    EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 151)), 0u);
    EXPECT_EQ(cache->counters().broken_pins, 0u);
  }
}

TEST(KvPins, OverlapAndEndOneByOne) {
  const auto cache = Make(60, 32);
  RunThrough(*cache, Prompt(1, 160));
  const KvPin whole = cache->PinCached(kRoot, Prompt(1, 160), 100);
  const KvPin part = cache->PinCached(kRoot, Prompt(1, 64), 200);
  ASSERT_EQ(part.outcome, KvPinOutcome::kPinned);
  EXPECT_EQ(cache->usage().pinned,
            10 * cache->layout().block_bytes(0) + 4 * cache->layout().block_bytes(1));
  cache->CheckInvariants();
  EXPECT_FALSE(cache->UnpinCached(OtherRoot(), whole.hash));
  EXPECT_TRUE(cache->UnpinCached(kRoot, whole.hash));
  EXPECT_FALSE(cache->UnpinCached(kRoot, whole.hash));
  cache->CheckInvariants();
  cache->EvictAll();
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 160)), 64u);
  EXPECT_EQ(cache->ClearCached(kRoot, {}, 1000).blocks, 0u) << "pins outlive clearing";
  EXPECT_TRUE(cache->UnpinCached(kRoot, part.hash));
  EXPECT_EQ(cache->ClearCached(kRoot, {}, 1000).blocks, 4u);
}

TEST(KvPins, RefuseWhatIsNotThereOrTooMuch) {
  const auto cache = Make(40);
  EXPECT_EQ(cache->PinCached(kRoot, Prompt(1, 10), 9).outcome, KvPinOutcome::kNotCached);
  EXPECT_EQ(cache->PinCached(kRoot, BlockHash{{5}}, 9).outcome, KvPinOutcome::kNotCached);
  RunThrough(*cache, Prompt(1, 16 * 21));
  EXPECT_EQ(cache->PinCached(OtherRoot(), Prompt(1, 160), 9).outcome, KvPinOutcome::kNotCached);
  const KvPin over = cache->PinCached(kRoot, Prompt(1, 16 * 11), 9);
  EXPECT_EQ(over.outcome, KvPinOutcome::kOverLimit);
  EXPECT_EQ(over.blocks, 11u);
  EXPECT_EQ(over.limit, 10u);
  EXPECT_EQ(cache->usage().pinned, 0u);
  EXPECT_EQ(cache->PinCached(kRoot, Prompt(1, 16 * 10), 9).outcome, KvPinOutcome::kPinned);
  EXPECT_EQ(cache->PinCached(kRoot, Prompt(1, 16 * 5), 9).outcome, KvPinOutcome::kPinned)
      << "costs nothing more";
  RunThrough(*cache, Prompt(2, 40));
  EXPECT_EQ(cache->PinCached(kRoot, Prompt(2, 40), 9).outcome, KvPinOutcome::kOverLimit);
  EXPECT_EQ(cache->PinCached(kRoot, Prompt(1, 300'000), 9).blocks, 21u)
      << "longer than any sequence";
  const auto many = Make(2000);
  RunThrough(*many, Prompt(1, 16 * (kMostPins + 2)));
  for (uint32_t i = 1; i <= kMostPins / 2; ++i) {
    ASSERT_EQ(many->PinCached(kRoot, Prompt(1, 16 * i), 9).outcome, KvPinOutcome::kPinned);
  }
  EXPECT_EQ(many->PinCached(kRoot, Prompt(1, 16 * kMostPins + 16), 9).outcome,
            KvPinOutcome::kTooMany);
  many->CheckInvariants();
}

// However much one has pinned, the next one can pin something.
TEST(KvPins, OneOwnerCannotTakeWhatIsThereForAll) {
  const auto cache = Make(400);  // Pins keep 200 at most.
  uint32_t left = 200;
  const auto root_of = [](uint8_t name) {
    BlockHash root;
    root.bytes[0] = name;
    return root;
  };
  for (uint8_t name = 0; name < 7; ++name) {
    const BlockHash root = root_of(name);
    const uint32_t share = (left + 1) / 2;
    const auto prompt = [&](uint32_t blocks) { return Prompt(name, blocks * 16); };
    RunThrough(*cache, prompt(share + 1), root);
    const KvPin over = cache->PinCached(root, prompt(share + 1), {1000, name});
    EXPECT_EQ(over.outcome, KvPinOutcome::kOverLimit);
    EXPECT_EQ(over.limit, share);
    const KvPin pin = cache->PinCached(root, prompt(share), {1000 + name, name});
    ASSERT_EQ(pin.outcome, KvPinOutcome::kPinned) << static_cast<int>(name);
    left -= share;
    cache->CheckInvariants();
  }
  // The first has more than it could get now, and may keep it longer, but get no more, neither here
  // nor under another root.
  EXPECT_EQ(cache->PinCached(root_of(0), Prompt(0, 100 * 16), {2000, 0}).outcome,
            KvPinOutcome::kPinned);
  EXPECT_EQ(cache->PinCached(root_of(0), Prompt(0, 101 * 16), {2000, 0}).outcome,
            KvPinOutcome::kOverLimit);
  RunThrough(*cache, Prompt(9, 16), root_of(9));
  EXPECT_EQ(cache->PinCached(root_of(9), Prompt(9, 16), {2000, 0}).outcome,
            KvPinOutcome::kOverLimit);
  // A root has one owner.
  EXPECT_EQ(cache->PinCached(root_of(0), Prompt(0, 101 * 16), {2000, 9}).outcome,
            KvPinOutcome::kOverLimit);
  // What others gave back is there again.
  cache->AdvanceTo(1500);
  EXPECT_EQ(cache->PinCached(root_of(9), Prompt(9, 16), {2000, 6}).limit, 50u);
  cache->AdvanceTo(kNever);
  cache->CheckInvariants();
  EXPECT_EQ(cache->usage().pinned, 0u);
}

TEST(KvPins, NeverStopWhoeverFitsAlone) {
  const auto cache = Make(40);
  RunThrough(*cache, Prompt(1, 160));
  RunThrough(*cache, Prompt(2, 80), OtherRoot());
  ASSERT_EQ(cache->PinCached(kRoot, Prompt(1, 160), 500).outcome, KvPinOutcome::kPinned);
  ASSERT_EQ(cache->PinCached(OtherRoot(), Prompt(2, 80), {400, 1}).outcome, KvPinOutcome::kPinned);
  EXPECT_TRUE(RunThrough(*cache, Prompt(3, 20 * 16))) << "beside the pins";
  EXPECT_EQ(cache->counters().broken_pins, 0u);
  // Two that run: a preemption will do, pins stay.
  const auto a = cache->Open(kRoot, Prompt(4, 100));
  const auto b = cache->Open(kRoot, Prompt(5, 100));
  ASSERT_TRUE(cache->Reserve(*a, 96));
  EXPECT_FALSE(cache->Reserve(*b, 30 * 16));
  EXPECT_EQ(cache->counters().broken_pins, 0u);
  cache->Close(*a);
  // The one that would end first makes way.
  EXPECT_TRUE(cache->Reserve(*b, 30 * 16));
  EXPECT_EQ(cache->counters().broken_pins, 1u);
  cache->CheckInvariants();
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 160)), 159u);
  EXPECT_TRUE(cache->Reserve(*b, 39 * 16));
  EXPECT_EQ(cache->counters().broken_pins, 2u);
  cache->Close(*b);
}

}  // namespace
}  // namespace kvasir
