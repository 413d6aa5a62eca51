#include "engine/kv_desk.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "model/fake_model_runner.h"

namespace kvasir {
namespace {

constexpr uint32_t kBlock = 16;
constexpr TimeUs kHour = 3'600'000'000;

std::vector<TokenId> Tokens(int32_t first, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(TokenId{static_cast<int32_t>(first + i)});
  return tokens;
}

BlockHash Root(uint8_t number) {
  BlockHash root;
  root.bytes.fill(number);
  return root;
}

class KvDeskTest : public ::testing::Test {
 protected:
  KvDeskTest() {
    KvCache::Options options;
    options.layout = FakeModelRunner(FakeModelRunner::Options()).kv_layout();
    options.block_counts = {400, 400};
    options.max_sequences = 2;
    options.max_sequence_tokens = 512;
    cache_ = std::move(KvCache::Create(options)).value();
    cache_->AdvanceTo(now_);
    desk_ = std::make_unique<KvDesk>(*cache_, 8);
  }

  // As a sequence that computes the tokens and ends. Returns how many were reused.
  uint32_t Compute(const BlockHash& root, const std::vector<TokenId>& tokens) {
    const std::optional<SequenceId> id = cache_->Open(root, tokens);
    EXPECT_TRUE(id.has_value());
    const uint32_t reused = cache_->computed(*id);
    const std::span<const TokenId> rest = std::span(tokens).subspan(reused);
    EXPECT_TRUE(cache_->Reserve(*id, static_cast<uint32_t>(rest.size())));
    cache_->Commit(*id, rest);
    cache_->Close(*id);
    return reused;
  }

  // The answer; `turns` says after how many.
  KvAnswer Ask(KvQuestion question, int* turns = nullptr) {
    std::optional<KvAnswer> answer;
    desk_->Take({std::move(question), kNever, [&](KvAnswer a) { answer = std::move(a); }});
    int count = 0;
    for (; !answer.has_value() && count < 1000; ++count) desk_->Work(now_);
    if (turns != nullptr) *turns = count;
    EXPECT_TRUE(desk_->idle());
    EXPECT_TRUE(answer.has_value() && answer->status.ok());
    return *std::move(answer);
  }

  std::vector<KvCachedEntry> All(const BlockHash& root, uint32_t limit = 1000) {
    std::vector<KvCachedEntry> entries;
    KvListQuery query{root, {}, limit, false};
    while (true) {
      const KvAnswer page = Ask(query);
      EXPECT_LE(page.entries.size(), limit);
      entries.insert(entries.end(), page.entries.begin(), page.entries.end());
      if (!page.next.has_value()) return entries;
      query.from = *page.next;
    }
  }

  TimeUs now_ = 1'000'000;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<KvDesk> desk_;
};

TEST_F(KvDeskTest, ListsEachEntryOnceInPagesOfAnySize) {
  for (int32_t i = 0; i < 20; ++i) Compute(Root(1), Tokens(i * 1000, 10 * kBlock));
  Compute(Root(2), Tokens(0, 3 * kBlock));
  const std::vector<KvCachedEntry> whole = All(Root(1));
  std::set<BlockHash> hashes;
  for (const KvCachedEntry& entry : whole) hashes.insert(entry.hash);
  EXPECT_EQ(hashes.size(), whole.size());
  EXPECT_GE(whole.size(), 20u * 10);
  for (const uint32_t limit : {1u, 7u, 64u, 65u, 199u}) {
    std::set<BlockHash> again;
    for (const KvCachedEntry& entry : All(Root(1), limit)) again.insert(entry.hash);
    EXPECT_EQ(again, hashes) << limit;
  }
  for (const KvCachedEntry& entry : All(Root(2))) EXPECT_EQ(hashes.count(entry.hash), 0u);
  EXPECT_TRUE(All(Root(3)).empty());
}

TEST_F(KvDeskTest, TokensOfEntriesSpellTheSequence) {
  const std::vector<TokenId> tokens = Tokens(5, 3 * kBlock);
  Compute(Root(1), tokens);
  const KvAnswer answer = Ask(KvListQuery{Root(1), {}, 100, true});
  ASSERT_EQ(answer.tokens.size(), answer.entries.size());
  std::map<uint32_t, std::vector<TokenId>> by_depth;
  for (size_t i = 0; i < answer.entries.size(); ++i) {
    by_depth[answer.entries[i].depth] = answer.tokens[i];
  }
  std::vector<TokenId> joined;
  for (const auto& [depth, part] : by_depth) {
    EXPECT_EQ(depth, joined.size());
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_EQ(joined, tokens);
}

TEST_F(KvDeskTest, PinsAreFoundAgainByTheirPrompt) {
  const std::vector<TokenId> tokens = Tokens(0, 4 * kBlock);
  Compute(Root(1), tokens);
  // One ends inside a block that goes on: its name is not that of any prefix of the prompt.
  const std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + 2 * kBlock + 5);
  const KvAnswer pinned = Ask(KvPinQuery{Root(1), prompt, std::nullopt, kHour});
  ASSERT_EQ(pinned.pin.outcome, KvPinOutcome::kPinned);
  EXPECT_EQ(pinned.pin.tokens, prompt.size());
  EXPECT_EQ(pinned.pinned_until, now_ + kHour);
  const auto unpin = [&](const BlockHash& root, const std::vector<TokenId>& wanted) {
    return Ask(KvUnpinQuery{root, std::nullopt, wanted, HashBlocks(root, wanted, kBlock)}).unpinned;
  };
  EXPECT_EQ(unpin(Root(2), prompt), std::nullopt);
  EXPECT_EQ(unpin(Root(1), Tokens(0, 2 * kBlock)), std::nullopt)
      << "it ends before the pin's block";
  std::vector<TokenId> other = prompt;
  other.back() = TokenId{99};
  EXPECT_EQ(unpin(Root(1), other), std::nullopt);
  EXPECT_EQ(unpin(Root(1), prompt), pinned.pin.hash);
  EXPECT_EQ(unpin(Root(1), prompt), std::nullopt);
  // Of several the deepest.
  const auto pin = [&](size_t count) {
    return Ask(KvPinQuery{Root(1), Tokens(0, count), std::nullopt, kHour}).pin.hash;
  };
  const BlockHash shallow = pin(kBlock), deep = pin(3 * kBlock);
  EXPECT_EQ(unpin(Root(1), tokens), deep);
  EXPECT_EQ(unpin(Root(1), tokens), shallow);
  EXPECT_EQ(cache_->usage().pinned, 0u);
}

TEST_F(KvDeskTest, ClearLeavesPinsAndOthersAlone) {
  for (int32_t i = 0; i < 15; ++i) Compute(Root(1), Tokens(i * 1000, 10 * kBlock));
  Compute(Root(2), Tokens(0, 4 * kBlock));
  ASSERT_EQ(Ask(KvPinQuery{Root(1), Tokens(3000, 2 * kBlock), std::nullopt, kHour}).pin.outcome,
            KvPinOutcome::kPinned);
  const size_t before = All(Root(1)).size();
  int turns = 0;
  const KvAnswer cleared = Ask(KvClearQuery{Root(1)}, &turns);
  // It took turns: a page looks at few blocks.
  EXPECT_GE(turns, static_cast<int>(150 / KvDesk::kClearBlocks / KvDesk::kPagesPerTurn));
  EXPECT_EQ(cleared.cleared_blocks, before - 2);
  EXPECT_EQ(All(Root(1)).size(), 2u);
  EXPECT_EQ(Compute(Root(1), Tokens(3000, 3 * kBlock)), 2 * kBlock);
  EXPECT_EQ(Compute(Root(2), Tokens(0, 4 * kBlock)), 4 * kBlock - 1);
  cache_->CheckInvariants();
}

// A long question does not hold up a short one, and waiting ones are bounded.
TEST_F(KvDeskTest, TakesTurns) {
  for (int32_t i = 0; i < 30; ++i) Compute(Root(1), Tokens(i * 1000, 12 * kBlock));
  std::vector<int> order;
  const auto note = [&](int number) {
    return [&order, number](KvAnswer) { order.push_back(number); };
  };
  desk_->Take({KvListQuery{Root(1), {}, 1000, false}, kNever, note(0)});
  desk_->Take({KvListQuery{Root(1), {}, 1, false}, kNever, note(1)});
  desk_->Work(now_);
  EXPECT_EQ(order, (std::vector<int>{1}));
  while (!desk_->idle()) desk_->Work(now_);
  EXPECT_EQ(order, (std::vector<int>{1, 0}));
  int refused = 0;
  for (int i = 0; i < 10; ++i) {
    desk_->Take({KvClearQuery{Root(1)}, now_ + 1, [&](const KvAnswer& answer) {
                   if (answer.status.code() == StatusCode::kResourceExhausted) ++refused;
                   if (answer.status.code() == StatusCode::kDeadlineExceeded) order.push_back(2);
                   if (answer.status.code() == StatusCode::kUnavailable) order.push_back(3);
                 }});
  }
  EXPECT_EQ(refused, 2);
  order.clear();
  desk_->Work(now_ + 1);
  EXPECT_EQ(order, std::vector<int>(KvDesk::kPagesPerTurn, 2)) << "too late";
  desk_->Close();
  EXPECT_EQ(order.size(), 8u);
  EXPECT_EQ(order.back(), 3);
}

}  // namespace
}  // namespace kvasir
