#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <string>

namespace kvasir {
namespace {

TEST(Mix64, MatchesSplitMix64) {
  // The first outputs of SplitMix64 seeded with 0, from the published reference program: output n
  // is the finaliser applied to n times the golden-ratio increment.
  EXPECT_EQ(Mix64(0), 0xE220A8397B1DCDAFull);
  EXPECT_EQ(Mix64(0x9E3779B97F4A7C15ull), 0x6E789E6AA1B965F4ull);
  EXPECT_EQ(Mix64(2 * 0x9E3779B97F4A7C15ull), 0x06C45D188009454Full);
}

TEST(Rng, SameSeedSameNumbersOtherSeedOthers) {
  Rng a(42), b(42), c(43);
  int equal = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = a.Next();
    EXPECT_EQ(value, b.Next());
    equal += value == c.Next();
  }
  EXPECT_EQ(equal, 0);
}

TEST(Rng, BelowIsUniformAndInRange) {
  Rng rng(7);
  std::array<int, 10> counts{};
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = rng.Below(10);
    ASSERT_LT(value, 10u);
    ++counts[value];
  }
  // Each count has deviation 95; six of them is one false alarm in 10^8.
  for (int count : counts) EXPECT_NEAR(count, kDraws / 10.0, 570);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rng.Below(1), 0u);
  // A bound just above 2^63 rejects nearly half of the draws; both halves must still be reached.
  const uint64_t bound = (uint64_t{1} << 63) + 1;
  int upper = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = rng.Below(bound);
    ASSERT_LT(value, bound);
    upper += value >= bound / 2;
  }
  EXPECT_NEAR(upper, 500, 100);
}

TEST(RngDeathTest, EmptyRangesAreBugs) {
  Rng rng(1);
  EXPECT_DEATH(rng.Below(0), "bound");
  EXPECT_DEATH(rng.Between(2, 1), "low");
}

TEST(Rng, BetweenReachesBothEnds) {
  Rng rng(3);
  std::array<bool, 5> seen{};
  for (int i = 0; i < 1000; ++i) {
    const int64_t value = rng.Between(-2, 2);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 2);
    seen[static_cast<size_t>(value + 2)] = true;
  }
  for (bool reached : seen) EXPECT_TRUE(reached);
  const int64_t far = std::numeric_limits<int64_t>::max() - 1;
  EXPECT_GE(rng.Between(far, far + 1), far);
}

TEST(Rng, UniformAndNormalHaveTheirMoments) {
  Rng rng(11);
  constexpr int kDraws = 200000;
  double sum = 0, normal_sum = 0, normal_squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = rng.Uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
    const double normal = rng.Normal();
    normal_sum += normal;
    normal_squares += normal * normal;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.004);
  EXPECT_NEAR(normal_sum / kDraws, 0.0, 0.014);
  EXPECT_NEAR(normal_squares / kDraws, 1.0, 0.02);
}

TEST(TestSeeds, EnvironmentNamesTheOneSeed) {
  const char* before = std::getenv("KVASIR_TEST_SEED");
  const std::string saved = before == nullptr ? "" : before;
  ::unsetenv("KVASIR_TEST_SEED");
  EXPECT_EQ(TestSeeds(3), (std::vector<uint64_t>{1, 2, 3}));
  ::setenv("KVASIR_TEST_SEED", "18446744073709551615", 1);
  EXPECT_EQ(TestSeeds(3), (std::vector<uint64_t>{18446744073709551615ull}));
  if (before == nullptr) {
    ::unsetenv("KVASIR_TEST_SEED");
  } else {
    ::setenv("KVASIR_TEST_SEED", saved.c_str(), 1);
  }
}

}  // namespace
}  // namespace kvasir
