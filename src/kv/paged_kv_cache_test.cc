#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/check.h"
#include "kv/serve_for_test.h"

namespace kvasir {
namespace {

const BlockHash kRoot{};

KvCache::Options SmallOptions(uint32_t blocks, uint32_t window = 0) {
  KvCache::Options options;
  options.layout.groups.push_back(KvGroup{{0}, 1, 16, 0});
  options.block_counts.push_back(blocks);
  if (window > 0) {
    options.layout.groups.push_back(KvGroup{{1, 2}, 1, 16, window});
    options.block_counts.push_back(blocks);
  }
  options.max_sequences = 4;
  options.max_sequence_tokens = 4096;
  return options;
}

TEST(KvCache, CreateSaysWhatIsWrong) {
  const auto message = [](const KvCache::Options& options) {
    return std::string(MessageOf(KvCache::Create(options).status()));
  };
  KvCache::Options options = SmallOptions(4, 32);
  options.block_counts.clear();
  options.memory_bytes = 3 * 1024 - 1;
  EXPECT_EQ(message(options),
            "KV memory of 3071 bytes cannot hold one block of 16 tokens; it needs 3072 bytes at "
            "least");
  options = SmallOptions(4);
  options.max_sequences = 0;
  EXPECT_NE(message(options).find("at most 0 sequences"), std::string::npos);
  options = SmallOptions(4);
  options.max_sequence_tokens = 0;
  EXPECT_NE(message(options).find("at most 0 tokens"), std::string::npos);
  options = SmallOptions(4);
  options.block_counts = {4, 4};
  EXPECT_NE(message(options).find("for 2 groups"), std::string::npos);
  options = SmallOptions(0);
  EXPECT_NE(message(options).find("0 KV blocks"), std::string::npos);
  options = SmallOptions(4);
  options.layout.block_tokens = 20;
  EXPECT_NE(message(options).find("20 tokens is not possible"), std::string::npos);
}

TEST(KvCache, BudgetIsAHardLimitInProportionToBytesPerToken) {
  KvCache::Options options = SmallOptions(1, 32);
  options.block_counts.clear();
  options.memory_bytes = 10 * 3072 + 3071;
  const auto cache = CacheOf(options);
  EXPECT_EQ(cache->block_count(0), 10u);
  EXPECT_EQ(cache->block_count(1), 10u);
  EXPECT_EQ(cache->usage().total, 30720u);
}

// A conversation's next turn goes on in the block that the last one left half full.
TEST(KvCache, ALeafThatIsContinuedAsAWholeIsTakenOverNotCopied) {
  for (const uint32_t window : {0u, 20u}) {
    const auto cache = CacheOf(SmallOptions(64, window));
    const std::vector<TokenId> first = Prompt(1, 40);
    const std::vector<TokenId> longer = Join(first, Prompt(2, 3));
    Serve(*cache, first);
    const uint32_t free = cache->free_blocks(0);
    const auto id = cache->Open(kRoot, longer);
    ASSERT_EQ(cache->computed(*id), 40u);
    ASSERT_TRUE(cache->Reserve(*id, 1));
    cache->CheckInvariants();
    EXPECT_EQ(cache->free_blocks(0), free) << "no second block for the same tokens";
    EXPECT_EQ(cache->counters().copies, 0u);
    EXPECT_EQ(cache->counters().taken_leaves, 1u);
    EXPECT_EQ(cache->MatchTokens(kRoot, longer), 32u) << "nobody else may see what is written on";
    // Given up before anything was computed: the leaf is there again.
    cache->Close(*id);
    cache->CheckInvariants();
    EXPECT_EQ(cache->MatchTokens(kRoot, longer), 40u);
    EXPECT_EQ(Serve(*cache, longer), 40u);
    EXPECT_EQ(cache->MatchTokens(kRoot, Join(longer, Prompt(3, 1))), 43u);
    EXPECT_EQ(cache->counters().taken_leaves, 2u);
    EXPECT_EQ(cache->counters().copies, 0u);
    // And those that leave it earlier find it as before.
    EXPECT_EQ(cache->MatchTokens(kRoot, Join(first, Prompt(4, 5))), 40u);
  }
}

TEST(KvCache, ALeafThatOthersWantIsCopied) {
  const auto cache = CacheOf(SmallOptions(64));
  const std::vector<TokenId> first = Prompt(1, 40);
  Serve(*cache, first);
  const auto reserve = [&](const std::vector<TokenId>& prompt) {
    const auto id = cache->Open(kRoot, prompt);
    KV_CHECK(id.has_value() && cache->Reserve(*id, 1));
    cache->CheckInvariants();
    return *id;
  };
  // Not as a whole: another prompt may go on where this one leaves it.
  cache->Close(reserve(Join(Prompt(1, 38), Prompt(2, 3))));
  EXPECT_EQ(cache->counters().copies, 1u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Join(first, Prompt(3, 1))), 40u);
  // Pinned.
  const KvPin pin = cache->PinCached(kRoot, first, kNever);
  ASSERT_EQ(pin.outcome, KvPinOutcome::kPinned);
  cache->Close(reserve(Join(first, Prompt(2, 3))));
  EXPECT_EQ(cache->counters().copies, 2u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Join(first, Prompt(3, 1))), 40u);
  ASSERT_TRUE(cache->UnpinCached(kRoot, pin.hash));
  // Two at once: the first copies, the other is then alone with it.
  const auto other = cache->Open(kRoot, Join(first, Prompt(4, 3)));
  const SequenceId id = reserve(Join(first, Prompt(2, 3)));
  EXPECT_EQ(cache->counters().copies, 3u);
  EXPECT_EQ(cache->counters().taken_leaves, 0u);
  ASSERT_TRUE(Compute(*cache, *other, Join(first, Prompt(4, 3))));
  EXPECT_EQ(cache->counters().taken_leaves, 1u);
  ASSERT_TRUE(Compute(*cache, id, Join(first, Prompt(2, 3))));
  cache->Close(id);
  cache->Close(*other);
  cache->CheckInvariants();
}

TEST(KvCache, SecondPromptComputesOnlyItsTail) {
  const auto cache = CacheOf(SmallOptions(64));
  EXPECT_EQ(Serve(*cache, Join(Prompt(1, 100), Prompt(2, 30))), 0u);
  EXPECT_EQ(Serve(*cache, Join(Prompt(1, 100), Prompt(3, 30))), 100u);
  EXPECT_EQ(cache->counters().hit_tokens, 100u);
  EXPECT_EQ(cache->counters().query_tokens, 260u);
  EXPECT_EQ(cache->counters().queries, 2u);
  EXPECT_EQ(cache->counters().hits, 1u);
}

TEST(KvCache, FullHitComputesOneToken) {
  for (const uint32_t size : {2u, 15u, 16u, 17u, 63u, 64u, 65u}) {
    for (const uint32_t window : {0u, 20u}) {
      const auto cache = CacheOf(SmallOptions(16, window));
      EXPECT_EQ(Serve(*cache, Prompt(1, size)), 0u);
      EXPECT_EQ(Serve(*cache, Prompt(1, size)), size - 1);
      EXPECT_EQ(Serve(*cache, Prompt(1, size + 5)), size);
      EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 1)), 0u);
      EXPECT_EQ(cache->MatchTokens(kRoot, {}), 0u);
    }
  }
}

TEST(KvCache, TheLastTokenOfAFullHitIsWrittenToACopy) {
  const auto cache = CacheOf(SmallOptions(16));
  Serve(*cache, Prompt(1, 64));
  const auto a = cache->Open(kRoot, Prompt(1, 64));
  const auto b = cache->Open(kRoot, Prompt(1, 64));
  EXPECT_EQ(cache->table(*a, 0).id(3), cache->table(*b, 0).id(3));
  ASSERT_TRUE(cache->Reserve(*a, 1));
  EXPECT_NE(cache->table(*a, 0).id(3), cache->table(*b, 0).id(3));
  EXPECT_EQ(cache->counters().copies, 1u);
  EXPECT_TRUE(Compute(*cache, *a, Prompt(1, 64)));
  // The copy became full and was the second of its kind: the sequence is back on the first.
  EXPECT_EQ(cache->table(*a, 0).id(3), cache->table(*b, 0).id(3));
  EXPECT_EQ(cache->counters().duplicate_nodes, 1u);
  EXPECT_EQ(cache->free_blocks(0), 12u);
}

TEST(KvCache, ForkSharesEverythingAndCopiesThePartialBlockOnce) {
  const auto cache = CacheOf(SmallOptions(16, 24));
  const auto a = cache->Open(kRoot, Prompt(1, 40));
  ASSERT_TRUE(Compute(*cache, *a, Prompt(1, 40)));
  const uint32_t free = cache->free_blocks(0);
  const auto b = cache->Fork(*a);
  ASSERT_TRUE(b.has_value());
  EXPECT_EQ(cache->computed(*b), 40u);
  EXPECT_EQ(cache->free_blocks(0), free);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cache->table(*a, 0).id(i), cache->table(*b, 0).id(i));
  }
  ASSERT_TRUE(Compute(*cache, *a, Join(Prompt(1, 40), Prompt(2, 10)), 1));
  ASSERT_TRUE(Compute(*cache, *b, Join(Prompt(1, 40), Prompt(3, 10)), 3));
  EXPECT_EQ(cache->counters().copies, 2u);  // One per group; the second writer is alone by then.
  CheckDigests(*cache, *a, PrefixDigests(0, Join(Prompt(1, 40), Prompt(2, 10))));
}

TEST(KvCache, ForkEndsTheReservation) {
  const auto cache = CacheOf(SmallOptions(16));
  const auto a = cache->Open(kRoot, Prompt(1, 40));
  ASSERT_TRUE(Compute(*cache, *a, Prompt(1, 40)));
  ASSERT_TRUE(cache->Reserve(*a, 4));
  ASSERT_TRUE(cache->Fork(*a).has_value());
  EXPECT_EQ(cache->reserved(*a), 0u);
}

// Gemma's shape: 4,000 tokens, then a prompt that leaves them at token 1,500.
TEST(KvCache, EarlyDivergenceReusesWhatBothShare) {
  const auto cache = CacheOf(SmallOptions(512, 512));
  Serve(*cache, Prompt(1, 4000));
  const std::vector<TokenId> diverging = Join(Prompt(1, 1500), Prompt(2, 500));
  EXPECT_EQ(cache->MatchTokens(kRoot, diverging), 1500u);
  EXPECT_EQ(Serve(*cache, diverging), 1500u);
  EXPECT_EQ(Serve(*cache, Prompt(1, 4000)), 3999u);
  // Only the window's blocks are held by a sequence that has come so far.
  const auto id = cache->Open(kRoot, Prompt(1, 4000));
  EXPECT_EQ(cache->table(*id, 1).held_count(), 32u);
  EXPECT_EQ(cache->table(*id, 0).held_count(), 250u);
}

// Window blocks go first; each loses only the hits within the next window tokens.
// The newest children are compared, older ones found by name: all of them, and nobody else.
TEST(KvCache, EveryBranchOfManyIsFound) {
  const auto cache = CacheOf(SmallOptions(64));
  const std::vector<TokenId> stem = Prompt(1, 16);
  constexpr uint64_t kBranches = 12;
  for (uint64_t i = 0; i < kBranches; ++i)
    Serve(*cache, Join(Join(stem, Prompt(10 + i, 16)), stem));
  for (uint64_t i = 0; i < kBranches; ++i) {
    const std::vector<TokenId> branch = Join(stem, Prompt(10 + i, 16));
    EXPECT_EQ(cache->MatchTokens(kRoot, Join(branch, Join(stem, Prompt(3, 1)))), 48u) << i;
    EXPECT_EQ(Serve(*cache, Join(branch, stem)), 47u) << i;
    std::vector<TokenId> other = branch;
    other.back() = TokenId{Index(other.back()) + 1};
    EXPECT_EQ(cache->MatchTokens(kRoot, Join(other, stem)), 31u) << i;
  }
  cache->CheckInvariants();
}

TEST(KvCache, DivergedAtNamesTheFirstTokenThatDiffers) {
  auto cache = CacheOf(SmallOptions(64));
  const std::vector<TokenId> cached = Prompt(1, 100);
  const auto diverged = [&](const std::vector<TokenId>& tokens) -> std::optional<uint32_t> {
    const auto divergence = cache->DivergedAt(kRoot, tokens);
    if (!divergence.has_value()) return std::nullopt;
    // What the branch says there is not what the prompt says.
    EXPECT_GT(divergence->cached_count, 0u);
    EXPECT_NE(divergence->cached[0], tokens[divergence->at]);
    return divergence->at;
  };
  EXPECT_EQ(diverged(cached), std::nullopt) << "cold";
  Serve(*cache, cached);
  EXPECT_EQ(diverged(cached), std::nullopt) << "the same";
  EXPECT_EQ(diverged(Prompt(1, 40)), std::nullopt) << "a prefix of it";
  EXPECT_EQ(diverged(Join(cached, Prompt(2, 40))), std::nullopt) << "extends it";
  EXPECT_EQ(diverged(Prompt(3, 40)), std::nullopt) << "nothing in common";
  for (const uint32_t shared : {1u, 15u, 16u, 17u, 48u, 95u, 96u, 99u}) {
    EXPECT_EQ(diverged(Join(Prompt(1, shared), Prompt(2, 30))), shared);
  }
  EXPECT_FALSE(cache->DivergedAt(DigestOf({}), Join(Prompt(1, 20), Prompt(2, 9))).has_value())
      << "another tenant";
  // Beside a second branch it is the one followed longest that counts.
  Serve(*cache, Join(Prompt(1, 50), Prompt(4, 30)));
  EXPECT_EQ(diverged(Join(Join(Prompt(1, 50), Prompt(4, 10)), Prompt(2, 9))), 60u);
  EXPECT_EQ(diverged(Join(Prompt(1, 70), Prompt(2, 9))), 70u);
  cache->EvictAll();
  EXPECT_EQ(diverged(Join(Prompt(1, 48), Prompt(2, 30))), std::nullopt) << "evicted";
}

TEST(KvCache, EvictedWindowBlocksCostOnlyNearbyHits) {
  KvCache::Options options = SmallOptions(512, 64);
  options.block_counts[1] = 20;
  const auto cache = CacheOf(options);
  Serve(*cache, Prompt(1, 800), kRoot, 64);  // 50 blocks; the window arena keeps 20 of them.
  EXPECT_EQ(cache->counters().evictions[0], 0u);
  EXPECT_EQ(cache->counters().evictions[1], 30u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 800)), 799u);
  // The newest 20 blocks begin at token 480: 63 tokens before a hit must be there.
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 545)), 544u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 543)), 0u);
  // Computing the lost part again puts the window blocks back where they were missing.
  const auto id = cache->Open(kRoot, Prompt(1, 400));
  EXPECT_EQ(cache->computed(*id), 0u);
  EXPECT_TRUE(Compute(*cache, *id, Prompt(1, 400), 64));
  cache->Close(*id);
  EXPECT_EQ(cache->idle_blocks(0), 50u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 401)), 400u);
}

TEST(KvCache, TheLeastRecentlyUsedConversationGoesFirst) {
  KvCache::Options options = SmallOptions(12);
  options.evict = KvEvict::kLru;
  const auto cache = CacheOf(options);
  Serve(*cache, Prompt(1, 64));
  Serve(*cache, Prompt(2, 64));
  Serve(*cache, Prompt(1, 65));  // Uses the first one again (and one more block).
  Serve(*cache, Prompt(3, 96));  // Six blocks; three are free.
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 66)), 65u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(2, 64)), 16u);  // Leaves went first.
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(3, 97)), 96u);
  EXPECT_EQ(cache->counters().evictions[0], 3u);
}

TEST(KvCache, ASequenceThatFitsAloneNeverWaitsForItself) {
  for (const uint32_t window : {0u, 16u, 64u}) {
    const auto cache = CacheOf(SmallOptions(4, window));
    Serve(*cache, Prompt(1, 64));                  // All four blocks.
    EXPECT_EQ(Serve(*cache, Prompt(1, 64)), 63u);  // No room for a copy: taken from the tree.
    EXPECT_EQ(Serve(*cache, Join(Prompt(1, 40), Prompt(2, 24))), 40u);
    EXPECT_EQ(cache->counters().failed_reserves, 0u);
  }
}

TEST(KvCache, ExhaustionIsAnAnswerAndChangesNothing) {
  const auto cache = CacheOf(SmallOptions(6));
  const auto a = cache->Open(kRoot, Prompt(1, 64));
  ASSERT_TRUE(Compute(*cache, *a, Prompt(1, 64)));
  const auto b = cache->Open(kRoot, Prompt(2, 64));
  EXPECT_FALSE(cache->Reserve(*b, 64));
  EXPECT_EQ(cache->free_blocks(0), 2u);
  EXPECT_EQ(cache->reserved(*b), 0u);
  EXPECT_EQ(cache->counters().failed_reserves, 1u);
  EXPECT_TRUE(cache->Reserve(*b, 32));
  cache->Close(*a);  // Preempted: what it computed stays until it is needed.
  EXPECT_EQ(cache->free_blocks(0) + cache->idle_blocks(0), 4u);
  EXPECT_TRUE(Compute(*cache, *b, Prompt(2, 64)));
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 64)), 32u);
}

TEST(KvCache, SequencesInLockstepKeepOneCopy) {
  const auto cache = CacheOf(SmallOptions(64, 24));
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*cache->Open(kRoot, Prompt(1, 160)));
  for (uint32_t end = 20; end <= 160; end += 20) {
    for (const SequenceId id : ids) ASSERT_TRUE(Compute(*cache, id, Prompt(1, end), 7));
  }
  EXPECT_EQ(cache->block_count(0) - cache->free_blocks(0), 10u);
  EXPECT_EQ(cache->block_count(1) - cache->free_blocks(1), 10u);
  EXPECT_EQ(cache->counters().duplicate_nodes, 20u);
}

TEST(KvCache, ContinuationIsWhatFollowedExactlyTheseTokens) {
  const auto cache = CacheOf(SmallOptions(64, 24));
  const auto after = [&](const std::vector<TokenId>& tokens, uint32_t computed, uint32_t most,
                         const BlockHash& root = kRoot) {
    const auto id = cache->Open(root, std::span(tokens).first(1));
    std::vector<TokenId> head(tokens.begin(), tokens.begin() + computed);
    KV_CHECK(Compute(*cache, *id, head));
    std::vector<TokenId> out(most);
    out.resize(cache->Continuation(*id, std::span(tokens).subspan(computed), out));
    cache->Close(*id);
    return out;
  };
  const std::vector<TokenId> said = Join(Prompt(1, 20), Prompt(2, 50));
  EXPECT_TRUE(after(Prompt(1, 20), 19, 8).empty());
  cache->EvictAll();
  ASSERT_EQ(Serve(*cache, said), 0u);
  // Within a block, across borders, after borders, up to the end of what is cached.
  for (uint32_t known = 1; known < said.size(); ++known) {
    SCOPED_TRACE(known);
    const std::vector<TokenId> tokens(said.begin(), said.begin() + known);
    const std::vector<TokenId> got = after(tokens, known - 1, 9);
    const uint32_t rest = std::min<uint32_t>(9, static_cast<uint32_t>(said.size()) - known);
    EXPECT_EQ(got, std::vector<TokenId>(said.begin() + known, said.begin() + known + rest));
  }
  EXPECT_TRUE(after(said, 69, 9).empty());
  EXPECT_TRUE(after(Join(Prompt(1, 20), Prompt(3, 1)), 20, 9).empty());
  // Tenants never meet.
  BlockHash other{};
  other.bytes[0] = 1;
  EXPECT_TRUE(after(Prompt(1, 20), 19, 9, other).empty());
  // Of two continuations the newest.
  Serve(*cache, Join(Prompt(1, 20), Prompt(4, 50)));
  EXPECT_EQ(after(Prompt(1, 20), 19, 3), Prompt(4, 3));
  EXPECT_EQ(after(Join(Prompt(1, 20), Prompt(2, 1)), 20, 3),
            std::vector<TokenId>(said.begin() + 21, said.begin() + 24));
}

TEST(KvCache, TenantsNeverMeet) {
  const auto cache = CacheOf(SmallOptions(64));
  BlockHash other;
  other.bytes[0] = 1;
  Serve(*cache, Prompt(1, 100));
  EXPECT_EQ(cache->MatchTokens(other, Prompt(1, 100)), 0u);
  EXPECT_EQ(Serve(*cache, Prompt(1, 100), other), 0u);
  EXPECT_EQ(cache->idle_blocks(0), 14u);
}

TEST(KvCache, APartialBlockIsKeptUntilALongerOneCoversIt) {
  const auto cache = CacheOf(SmallOptions(64));
  Serve(*cache, Prompt(1, 20));
  EXPECT_EQ(cache->idle_blocks(0), 2u);
  EXPECT_EQ(Serve(*cache, Prompt(1, 25)), 20u);
  EXPECT_EQ(cache->idle_blocks(0), 2u);
  EXPECT_EQ(Serve(*cache, Prompt(1, 22)), 21u);  // Covered: nothing new is kept.
  EXPECT_EQ(cache->idle_blocks(0), 2u);
  EXPECT_EQ(Serve(*cache, Prompt(1, 32)), 25u);
  EXPECT_EQ(cache->idle_blocks(0), 2u);
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 40)), 32u);
}

TEST(KvCache, RejectedDraftsLeaveNoTrace) {
  const auto cache = CacheOf(SmallOptions(64, 24));
  const auto id = cache->Open(kRoot, Prompt(1, 30));
  ASSERT_TRUE(Compute(*cache, *id, Prompt(1, 30)));
  const std::vector<uint64_t> drafts(40, 0xBAD);
  ASSERT_TRUE(cache->Reserve(*id, 40));
  WriteDigests(*cache, *id, drafts);
  cache->Commit(*id, {});
  EXPECT_EQ(cache->computed(*id), 30u);
  ASSERT_TRUE(Compute(*cache, *id, Prompt(1, 31)));
  // Committed, and then taken back.
  cache->Truncate(*id, 30);
  EXPECT_EQ(cache->table(*id, 0).size(), 2u);
  ASSERT_TRUE(Compute(*cache, *id, Join(Prompt(1, 30), Prompt(2, 40))));
  cache->Close(*id);
  EXPECT_EQ(cache->MatchTokens(kRoot, Prompt(1, 40)), 30u);
}

TEST(KvCache, EverySlotOfSequencesHasALimit) {
  const auto cache = CacheOf(SmallOptions(8));
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(*cache->Open(kRoot, {}));
  EXPECT_FALSE(cache->Open(kRoot, {}).has_value());
  EXPECT_FALSE(cache->Fork(ids[0]).has_value());
  cache->Close(ids[2]);
  EXPECT_TRUE(cache->Fork(ids[0]).has_value());
  EXPECT_EQ(cache->open_sequences(), 4u);
}

TEST(KvCacheDeathTest, Misuse) {
  const auto cache = CacheOf(SmallOptions(8));
  const auto id = cache->Open(kRoot, Prompt(1, 8));
  EXPECT_DEATH(cache->Commit(*id, Prompt(1, 1)), "kv_cache.cc");  // Nothing is reserved.
  ASSERT_TRUE(cache->Reserve(*id, 2));
  EXPECT_DEATH(cache->Commit(*id, Prompt(1, 3)), "kv_cache.cc");
  EXPECT_DEATH((void)cache->Reserve(*id, 4097), "kv_cache.cc");
  EXPECT_DEATH(cache->Truncate(*id, 1), "kv_cache.cc");
  EXPECT_DEATH(cache->table(*id, 1), "kv_cache.cc");
  EXPECT_DEATH(cache->computed(SequenceId{3}), "kv_cache.cc");
  EXPECT_DEATH(cache->MatchTokens(kRoot, Prompt(1, 4097)), "kv_cache_prefix.cc");
  cache->Close(*id);
  EXPECT_DEATH(cache->Close(*id), "kv_cache.cc");
}

}  // namespace
}  // namespace kvasir
