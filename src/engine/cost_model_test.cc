#include "engine/cost_model.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvasir {
namespace {

constexpr double kLinear = 1e8;
constexpr double kAttention = 4e4;

// Steps of 256 rows at random depths on a machine where a row takes `a` microseconds and `b` more
// for each token before it, give or take a tenth.
double Learned(double a, double b, int steps, uint32_t most_depth) {
  CostModel model({kLinear, kAttention, 5e4});
  Rng rng(3);
  for (int i = 0; i < steps; ++i) {
    const uint32_t depth = static_cast<uint32_t>(rng.Below(most_depth + 1));
    const double pairs = 256.0 * depth + 256.0 * 255 / 2;
    const double noise = 0.9 + 0.2 * static_cast<double>(rng.Below(1001)) / 1000;
    model.ObservePrompts(model.RowsCost(256, depth), 256,
                         static_cast<TimeUs>((a * 256 + b * pairs) * noise));
  }
  return model.depth_cost();
}

TEST(CostModelDepth, StartsWithTheOptionsAndLearnsWhatIsMeasured) {
  const double assumed = kAttention / kLinear;
  EXPECT_DOUBLE_EQ(Learned(100, 0, 0, 0), assumed);
  for (const double ratio : {assumed / 4, assumed, assumed * 3}) {
    EXPECT_NEAR(Learned(100, 100 * ratio, 300, 8000), ratio, 0.15 * ratio);
    EXPECT_NEAR(Learned(1000, 1000 * ratio, 300, 8000), ratio, 0.15 * ratio) << "a slower machine";
  }
}

TEST(CostModelDepth, StepsThatAreAllAlikeSayLittle) {
  const double assumed = kAttention / kLinear;
  EXPECT_NEAR(Learned(100, 100 * assumed, 300, 0), assumed, 0.5 * assumed);
}

TEST(CostModelDepth, StaysNearWhatTheModelSuggests) {
  const double assumed = kAttention / kLinear;
  EXPECT_DOUBLE_EQ(Learned(100, 0, 300, 8000), assumed / 8);
  EXPECT_DOUBLE_EQ(Learned(0, 1, 300, 8000), assumed * 8);
  CostModel model({kLinear, kAttention, 5e4});
  model.ObservePrompts(1e12, 8, 1000);  // Too few rows.
  model.ObservePrompts(1e12, 512, 0);   // No time.
  EXPECT_DOUBLE_EQ(model.depth_cost(), assumed);
  CostModel flat({kLinear, 0, 5e4});
  flat.ObservePrompts(1e12, 512, 1000);
  EXPECT_DOUBLE_EQ(flat.depth_cost(), 0.0);
}

}  // namespace
}  // namespace kvasir
