#include "engine/draft_grants.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace kvasir {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Draft Of(uint32_t count, float chance) {
  Draft draft;
  draft.count = count;
  float all = 1.0f;
  for (uint32_t i = 0; i < count; ++i) draft.chances[i] = all *= chance;
  return draft;
}

// Steps of r rows take base + r * slope.
StepTimes Line(double base_us, double slope_us) {
  StepTimes times;
  for (int round = 0; round < 200; ++round) {
    for (uint32_t rows = 1; rows <= StepTimes::kMaxRows; ++rows) {
      times.Observe(rows, static_cast<TimeUs>(base_us + rows * slope_us));
    }
  }
  return times;
}

uint32_t Granted(std::vector<Draft> drafts, uint32_t streams, const StepTimes& times,
                 uint32_t most_rows = 64, double most_us = kNoLimit) {
  const uint32_t sum = GrantDrafts(drafts, streams, most_rows, most_us, times);
  uint32_t counted = 0;
  for (const Draft& draft : drafts) counted += draft.count;
  EXPECT_EQ(sum, counted);
  return sum;
}

TEST(GrantDrafts, CheapRowsAreUsedDearOnesAreNot) {
  const StepTimes memory_bound = Line(10'000, 200);
  const StepTimes compute_bound = Line(10, 1'000);
  EXPECT_EQ(Granted({Of(15, 0.99f)}, 1, memory_bound), 15u);
  EXPECT_EQ(Granted({Of(15, 0.99f)}, 1, compute_bound), 0u);
  // Worse guesses: only the first ones are worth their rows.
  const uint32_t some = Granted({Of(15, 0.6f)}, 1, memory_bound);
  EXPECT_GT(some, 2u);
  EXPECT_LT(some, 10u);
  EXPECT_EQ(Granted({Of(15, 0.04f)}, 1, memory_bound), 0u);
}

TEST(GrantDrafts, TheBestGuessesComeFirst) {
  std::vector<Draft> drafts = {Of(15, 0.3f), Of(15, 0.95f)};
  GrantDrafts(drafts, 2, 6, kNoLimit, Line(10'000, 100));
  EXPECT_EQ(drafts[0].count, 0u);
  EXPECT_EQ(drafts[1].count, 6u);
}

TEST(GrantDrafts, StreamsWithoutGuessesAreHeldUpByAQuarterAtMost) {
  const StepTimes times = Line(8'000, 1'000);
  const uint32_t beside_others = Granted({Of(15, 1.0f)}, 4, times);
  EXPECT_GT(beside_others, 0u);
  EXPECT_LE(beside_others, 3u);  // 12 ms alone, so 15 ms at most.
  EXPECT_EQ(Granted({Of(15, 1.0f), Of(15, 1.0f), Of(15, 1.0f), Of(15, 1.0f)}, 4, times), 60u);
}

TEST(GrantDrafts, KeepsWithinRowsAndTime) {
  const StepTimes times = Line(10'000, 1'000);
  EXPECT_EQ(Granted({Of(15, 1.0f)}, 1, times, 4), 4u);
  EXPECT_EQ(Granted({Of(15, 1.0f)}, 1, times, 0), 0u);
  EXPECT_LE(Granted({Of(15, 1.0f)}, 1, times, 64, 14'500), 3u);
  EXPECT_EQ(Granted({Of(15, 1.0f)}, 1, times, 64, 500), 0u);
  EXPECT_EQ(Granted({}, 3, times), 0u);
}

TEST(GrantDrafts, AllOfThemWhenForced) {
  std::vector<Draft> drafts = {Of(3, 0.01f), Of(15, 0.01f), Of(15, 0.01f)};
  EXPECT_EQ(GrantAllDrafts(drafts, 12), 12u);
  EXPECT_EQ(drafts[0].count, 3u);
  EXPECT_EQ(drafts[1].count, kForcedDraftTokens);
  EXPECT_EQ(drafts[2].count, 2u);
}

TEST(StepTimes, LearnsEachNumberOfRowsAndGuessesTheOthers) {
  StepTimes times;
  EXPECT_FALSE(times.measured());
  EXPECT_GT(times.Predict(2), times.Predict(1));
  times.Observe(0, 5);
  times.Observe(1, 0);
  times.Observe(65, 100);
  EXPECT_FALSE(times.measured());
  for (int i = 0; i < 50; ++i) {
    times.Observe(1, 2'000);
    times.Observe(4, 5'000);
  }
  EXPECT_NEAR(times.Predict(1), 2'000, 60);
  EXPECT_NEAR(times.Predict(4), 5'000, 60);
  EXPECT_NEAR(times.Predict(2), 3'000, 100);
  EXPECT_GT(times.Predict(8), 5'000);
  EXPECT_GT(times.Predict(200), times.Predict(64));
}

// The rows of steps of one stream whose guesses are always right, until they stay the same.
std::vector<uint32_t> Tried(StepTimes* times, double base_us, double slope_us) {
  std::vector<uint32_t> tried;
  while (tried.size() < 20) {
    std::vector<Draft> drafts = {Of(15, 1.0f)};
    const uint32_t rows = 1 + GrantDrafts(drafts, 1, 64, kNoLimit, *times);
    if (rows > 1 && !tried.empty() && rows == tried.back()) break;
    tried.push_back(rows);
    times->Observe(rows, static_cast<TimeUs>(base_us + slope_us * rows));
  }
  return tried;
}

TEST(StepTimes, SizesAreTriedByDoubling) {
  // Without any measurement the shape is believed. Then it is seen what a step without guesses
  // takes.
  StepTimes unknown;
  EXPECT_EQ(Tried(&unknown, 10'000, 100), (std::vector<uint32_t>{16, 1, 1, 1, 16}));
  StepTimes begun;
  begun.Observe(1, 10'100);
  const std::vector<uint32_t> tried = Tried(&begun, 10'000, 100);
  ASSERT_GT(tried.size(), 3u);
  EXPECT_EQ(std::vector<uint32_t>(tried.begin(), tried.begin() + 3),
            (std::vector<uint32_t>{1, 1, 2}));
  EXPECT_EQ(tried.back(), 16u);
  for (size_t i = 1; i < tried.size(); ++i) EXPECT_LE(tried[i], 3 * tried[i - 1]);
}

// A step of 8 rows that takes 6 ms, where each more takes 0.6: guesses must be better than 80 % to
// be worth that, which shows only beside steps without any.
TEST(GrantDrafts, StepsWithoutGuessesAreMeasuredNowAndThen) {
  StepTimes times;
  uint32_t without = 0;
  for (int step = 0; step < 2'000; ++step) {
    std::vector<Draft> drafts(8, Of(15, 0.7f));
    const uint32_t granted = GrantDrafts(drafts, 8, 56, kNoLimit, times);
    if (granted == 0) ++without;
    times.Observe(8 + granted, static_cast<TimeUs>(6'000 + 600 * granted));
  }
  EXPECT_GT(without, 1'980u);
  without = 0;
  for (int step = 0; step < 2'000; ++step) {
    std::vector<Draft> drafts(8, Of(15, 0.95f));
    const uint32_t granted = GrantDrafts(drafts, 8, 56, kNoLimit, times);
    if (granted == 0) ++without;
    times.Observe(8 + granted, static_cast<TimeUs>(6'000 + 600 * granted));
  }
  EXPECT_GE(without, 2'000u / 128);
  EXPECT_LT(without, 40u);
}

TEST(StepTimes, OneDisturbedStepIsNoRule) {
  StepTimes times;
  for (int i = 0; i < 20; ++i) times.Observe(3, 1'000);
  times.Observe(3, 1'000'000);
  EXPECT_LT(times.Predict(3), 1'300);
}

TEST(StepTimes, WhatIsNotRenewedIsTriedAgain) {
  StepTimes times;
  for (int i = 0; i < 20; ++i) times.Observe(1, 1'000);
  for (int i = 0; i < 20; ++i) times.Observe(9, 10'000);
  EXPECT_GT(times.Predict(9), 9'000);
  for (int i = 0; i < 4'000; ++i) times.Observe(1, 1'000);
  EXPECT_LT(times.Predict(9), 2'500);
}

}  // namespace
}  // namespace kvasir
