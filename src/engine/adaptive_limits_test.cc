#include "engine/adaptive_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace kvasir {
namespace {

using Reason = AdaptiveDecision::Reason;

uint64_t Times(const AdaptiveLimits& limits, Reason reason) {
  return limits.report().by_reason[static_cast<size_t>(reason)];
}

// A machine whose memory holds `capacity` sequences without loss: each one above costs more work
// again than it brings. `offered` sequences want to run.
struct Memory {
  uint32_t capacity = 10;
  uint32_t offered = 32;
  Rng rng{1};

  AdaptiveStep Step(const AdaptiveLimits& limits) {
    AdaptiveStep step;
    step.elapsed_us = 10'000;
    step.running = std::min(offered, limits.running_limit());
    step.waiting = offered - step.running;
    step.computed_tokens = 4 * step.running;
    step.streams = true;
    if (step.running > capacity) {
      step.recomputed_tokens = static_cast<uint32_t>(rng.Below(40 * (step.running - capacity)));
    }
    return step;
  }
};

struct Course {
  std::vector<uint32_t> limit;  // After each window.
  uint32_t moves = 0;
};

Course RunLoad(AdaptiveLimits& limits, Memory& memory, uint32_t windows) {
  Course course;
  for (uint32_t w = 0; w < windows; ++w) {
    const uint32_t before = limits.running_limit();
    for (uint32_t s = 0; s < AdaptiveLimits::kWindowSteps; ++s) limits.Observe(memory.Step(limits));
    course.limit.push_back(limits.running_limit());
    course.moves += limits.running_limit() != before;
  }
  return course;
}

TEST(AdaptiveLimits, RunningSettlesBelowWhereWorkIsLost) {
  for (const uint32_t capacity : {2u, 5u, 10u, 31u}) {
    AdaptiveLimits limits({.most_running = 32});
    Memory memory{.capacity = capacity};
    RunLoad(limits, memory, 300);
    const Course settled = RunLoad(limits, memory, 1000);
    // Neither far below the capacity nor above it, but for a rare probe of a window or two.
    const auto near =
        std::count_if(settled.limit.begin(), settled.limit.end(), [&](uint32_t limit) {
          return limit <= capacity && limit + std::max(2u, capacity / 4 + 1) >= capacity;
        });
    EXPECT_GE(near, 960) << "capacity " << capacity;
    EXPECT_LE(settled.moves, 40u) << "capacity " << capacity;
  }
}

TEST(AdaptiveLimits, RunningFollowsLoadUpAndDown) {
  AdaptiveLimits limits({.most_running = 32});
  Memory memory{.capacity = 8};
  RunLoad(limits, memory, 200);
  EXPECT_LE(limits.running_limit(), 8u);
  // Shorter sequences: more fit. The limit finds out.
  memory.capacity = 24;
  RunLoad(limits, memory, 1500);
  EXPECT_GE(limits.running_limit(), 16u);
  EXPECT_LE(limits.running_limit(), 24u);
  // Hardly any load: the limit does not matter, and what was learnt is forgotten.
  memory.offered = 2;
  RunLoad(limits, memory, 60);
  EXPECT_EQ(limits.running_limit(), 32u);
  EXPECT_GE(Times(limits, Reason::kLimitIdle), 1u);
}

TEST(AdaptiveLimits, LossesThatCostLessThanASequenceBringsAreBorne) {
  AdaptiveLimits limits({.most_running = 4});
  for (int i = 0; i < 5000; ++i) {
    AdaptiveStep step;
    step.elapsed_us = 10'000;
    step.running = 4;
    step.waiting = 8;
    step.computed_tokens = 4;
    step.recomputed_tokens = i % 20 == 0 ? 24 : 0;  // 30 %; half would be too much.
    limits.Observe(step);
  }
  EXPECT_EQ(limits.running_limit(), 4u);
}

TEST(AdaptiveLimits, NothingMovesWithoutPressure) {
  AdaptiveLimits limits({.most_running = 32, .stretch = 3});
  Memory memory{.capacity = 64, .offered = 40};
  EXPECT_EQ(RunLoad(limits, memory, 500).moves, 0u);
  EXPECT_EQ(limits.stretch(), 3u);
}

// Prompts arrive beside streams whose step takes 4 ms; alone, 12 tokens of prompts take 1 ms.
struct Prompts {
  double arriving_per_ms = 6;
  double backlog = 0;
  double last_ms = 4;

  AdaptiveStep Step(const AdaptiveLimits& limits) {
    backlog += arriving_per_ms * last_ms;
    const double read = std::min(backlog, 12.0 * 4.0 * (limits.stretch() - 1));
    backlog -= read;
    last_ms = 4.0 + read / 12.0;
    AdaptiveStep step;
    step.elapsed_us = static_cast<TimeUs>(last_ms * 1000);
    step.prompt_tokens = static_cast<uint32_t>(read);
    step.computed_tokens = step.prompt_tokens + 8;
    step.prompt_backlog = static_cast<uint64_t>(backlog);
    step.streams = true;
    step.running = 9;
    return step;
  }
};

TEST(AdaptiveLimits, StretchGrowsWithThePromptsThatWaitAndComesBack) {
  AdaptiveLimits limits({.most_running = 32, .stretch = 3});
  Prompts prompts;
  prompts.arriving_per_ms = 6;  // A stretch of 3 leaves 8 a millisecond: enough.
  for (int i = 0; i < 2000; ++i) limits.Observe(prompts.Step(limits));
  EXPECT_EQ(limits.stretch(), 3u);
  prompts.arriving_per_ms = 10.5;
  uint64_t moves = 0;
  for (int i = 0; i < 4000; ++i) {
    const uint32_t before = limits.stretch();
    limits.Observe(prompts.Step(limits));
    if (i >= 2000) moves += limits.stretch() != before;
  }
  EXPECT_GE(limits.stretch(), 8u) << "7 eighths of 12 are 10.5";
  EXPECT_LE(moves, 4u) << "it should have settled";
  prompts.arriving_per_ms = 1;
  for (int i = 0; i < 2000; ++i) limits.Observe(prompts.Step(limits));
  EXPECT_EQ(limits.stretch(), 3u);
  EXPECT_GE(Times(limits, Reason::kPromptsCaughtUp), 1u);
}

TEST(AdaptiveLimits, DecisionsSayWhatAndWhy) {
  AdaptiveLimits limits({.most_running = 16});
  Memory memory{.capacity = 4, .offered = 16};
  RunLoad(limits, memory, 5);
  ASSERT_GE(limits.report().decisions, 1u);
  const AdaptiveDecision& first = limits.report().recent[0];
  EXPECT_EQ(first.from, 16u);
  EXPECT_EQ(first.to, 12u);
  EXPECT_EQ(first.reason, Reason::kWorkLost);
  EXPECT_NE(Describe(first).find("running sequences, at most 16 -> 12: "), std::string::npos);
  EXPECT_NE(Describe(first).find("% of the work was done twice"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
