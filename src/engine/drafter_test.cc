#include "engine/drafter.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace kvasir {
namespace {

std::vector<TokenId> Ids(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(TokenId{c});
  return ids;
}

// What is guessed after `text`, which came token by token behind `prompt`.
std::string Guess(Drafter& drafter, std::string_view prompt, std::string_view text,
                  uint32_t most = kMaxDraftTokens) {
  std::vector<TokenId> known = Ids(prompt);
  drafter.Update(known);
  for (const char c : text) {
    known.push_back(TokenId{c});
    drafter.Update(known);
  }
  Draft draft;
  drafter.Propose(known, most, &draft);
  std::string guess;
  float before = 1.0f;
  for (uint32_t i = 0; i < draft.count; ++i) {
    EXPECT_GT(draft.chances[i], 0.0f);
    EXPECT_LE(draft.chances[i], before);
    before = draft.chances[i];
    guess.push_back(static_cast<char>(Index(draft.tokens[i])));
  }
  return guess;
}

std::string Guess(std::string_view prompt, std::string_view text, uint32_t most = kMaxDraftTokens) {
  Drafter drafter(1000);
  return Guess(drafter, prompt, text, most);
}

TEST(Drafter, TwoEqualTokensAreTheLeast) {
  EXPECT_EQ(Guess("abcdefgh", "x", 4), "");
  EXPECT_EQ(Guess("abcdefgh", "xb", 4), "");
  EXPECT_EQ(Guess("abcdefgh", "xbc", 4), "defg");
  EXPECT_EQ(Guess("abcdefgh", "xbc", 0), "");
}

TEST(Drafter, TheLongestMatchWinsThenTheLatest) {
  // "bc" stands last before 3, "abc" before 2, "zabc" before 1.
  EXPECT_EQ(Guess("zabc1 abc2 bc3 ", "zabc", 1), "1");
  EXPECT_EQ(Guess("zabc1 abc2 bc3 ", "yabc", 1), "2");
  EXPECT_EQ(Guess("zabc1 abc2 bc3 ", "ybc", 1), "3");
  EXPECT_EQ(Guess("abc1 abc2 abc3 ", "abc", 1), "3");
}

TEST(Drafter, WhatWasGeneratedIsASourceToo) { EXPECT_EQ(Guess("q", "one two, one ", 4), "two,"); }

TEST(Drafter, ACircleGoesOn) {
  EXPECT_EQ(Guess("ab", "ababab", 7), "abababa");
  EXPECT_EQ(Guess("x", "aaaa", 5), "aaaaa");
}

TEST(Drafter, AfterAChangedTokenTheCopyGoesOn) {
  EXPECT_EQ(Guess("the total of all orders", "> the t", 4), "otal");
  EXPECT_EQ(Guess("the total of all orders", "the totaX", 4), " of ");
  // After two changes nothing is certain any more.
  EXPECT_EQ(Guess("the total of all orders", "the totaXY", 4), "");
}

TEST(Drafter, TheCacheComesBeforeAShortMatch) {
  Drafter drafter(1000);
  EXPECT_TRUE(drafter.wants_cached());
  EXPECT_EQ(Guess(drafter, "abcdefgh", "xab", 3), "cde");
  drafter.OfferCached(Ids("123456"));
  EXPECT_FALSE(drafter.wants_cached());
  std::vector<TokenId> known = Ids("abcdefghxab");
  Draft draft;
  drafter.Propose(known, 3, &draft);
  EXPECT_EQ(Index(draft.tokens[0]), '1');
  EXPECT_EQ(draft.count, 3u);
  // It moves on with what comes, and ends with the first other token.
  known.push_back(TokenId{'1'});
  drafter.Update(known);
  drafter.Propose(known, 3, &draft);
  EXPECT_EQ(Index(draft.tokens[0]), '2');
  known.push_back(TokenId{'9'});
  drafter.Update(known);
  EXPECT_TRUE(drafter.wants_cached());
}

TEST(Drafter, ChancesFollowWhatCame) {
  // After "ab" something new each time.
  Drafter drafter(1000);
  Draft draft;
  std::vector<TokenId> known = Ids("ab0");
  drafter.Update(known);
  float first = 0.0f, last = 0.0f;
  for (char c = 'A'; c <= 'Z'; ++c) {
    known.push_back(TokenId{'a'});
    known.push_back(TokenId{'b'});
    drafter.Update(known);
    drafter.Propose(known, 1, &draft);
    ASSERT_EQ(draft.count, 1u);
    if (c == 'A') first = draft.chances[0];
    last = draft.chances[0];
    known.push_back(TokenId{c});
  }
  EXPECT_LT(last, first / 2);
  // Then the same text again and again: guesses become near certain.
  for (int round = 0; round < 8; ++round) {
    for (const char c : std::string_view("the same text again. ")) known.push_back(TokenId{c});
  }
  drafter.Update(known);
  drafter.Propose(known, 5, &draft);
  EXPECT_GT(draft.chances[4], 0.8f);
}

// However the tokens come, in one call or many, the state is the same; guesses are what really
// followed an equal gram.
TEST(DrafterProperty, GuessesAreCopies) {
  for (const uint64_t seed : TestSeeds(200)) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const auto alphabet = static_cast<uint64_t>(rng.Between(2, 200));
    const auto length = static_cast<size_t>(rng.Between(1, 600));
    Drafter drafter(static_cast<uint32_t>(length));
    std::vector<TokenId> known;
    while (known.size() < length) {
      const size_t more = std::min<size_t>(rng.Below(9) + 1, length - known.size());
      for (size_t i = 0; i < more; ++i) {
        known.push_back(TokenId{static_cast<int32_t>(rng.Below(alphabet))});
      }
      drafter.Update(known);
      Draft draft;
      drafter.Propose(known, static_cast<uint32_t>(rng.Below(20)), &draft);
      ASSERT_LE(draft.count, kMaxDraftTokens);
      if (draft.count == 0) continue;
      std::vector<TokenId> text = known;
      text.insert(text.end(), draft.tokens.begin(), draft.tokens.begin() + draft.count);
      // Somewhere before, the guessed tokens stand behind one another.
      bool found = false;
      for (size_t at = 1; at < known.size() && !found; ++at) {
        found = std::equal(draft.tokens.begin(), draft.tokens.begin() + draft.count,
                           text.begin() + static_cast<std::ptrdiff_t>(at));
      }
      ASSERT_TRUE(found);
    }
  }
}

}  // namespace
}  // namespace kvasir
