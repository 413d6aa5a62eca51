#include "engine/counter_random.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace kvasir {
namespace {

// The known answers published with the Random123 library (philox4x32, 10 rounds).
TEST(CounterRandom, PublishedKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, UniformOverPositionsOfOneSeedAndOverSeedsAtOnePosition) {
  constexpr int kBins = 64;
  constexpr int kDraws = 64000;
  for (const bool by_position : {true, false}) {
    std::vector<int> counts(kBins, 0);
    for (int i = 0; i < kDraws; ++i) {
      const uint64_t n = static_cast<uint64_t>(i);
      const double u = by_position ? UniformAt(7, n) : UniformAt(n, 7);
      ASSERT_GE(u, 0.0);
      ASSERT_LT(u, 1.0);
      ++counts[static_cast<size_t>(u * kBins)];
    }
    double chi_square = 0.0;
    const double expected = static_cast<double>(kDraws) / kBins;
    for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
    // 63 degrees of freedom: above 103.4 happens once in a thousand.
    EXPECT_LT(chi_square, 103.4) << (by_position ? "positions" : "seeds");
  }
}

TEST(CounterRandom, HighBitsOfSeedAndPositionMatter) {
  std::set<double> draws;
  for (const uint64_t seed : {0ull, 1ull, 1ull << 32, 1ull << 63}) {
    for (const uint64_t position : {0ull, 1ull, 1ull << 32, 1ull << 63}) {
      draws.insert(UniformAt(seed, position));
    }
  }
  EXPECT_EQ(draws.size(), 16u);
}

}  // namespace
}  // namespace kvasir
