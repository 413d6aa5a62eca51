// Random takes and returns against the simplest thing that could be right: a flag for each block.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "kv/region_pool.h"

namespace kvasir {
namespace {

// The maximal free runs of the flags, by address.
std::vector<Region> RunsOf(const std::vector<bool>& taken) {
  std::vector<Region> runs;
  for (uint32_t i = 0; i < taken.size(); ++i) {
    if (taken[i]) continue;
    if (i == 0 || taken[i - 1]) runs.push_back({i, 0});
    ++runs.back().count;
  }
  return runs;
}

// Where best fit puts `count` blocks.
std::optional<Region> BestFit(const std::vector<Region>& runs, uint32_t count) {
  std::multimap<uint32_t, uint32_t> by_size;  // Insertion order among equals: lowest first.
  for (const Region& run : runs) by_size.emplace(run.count, run.first);
  const auto found = by_size.lower_bound(count);
  if (found == by_size.end()) return std::nullopt;
  return Region{found->second, count};
}

TEST(RegionPoolProperty, AgreesWithFlags) {
  uint64_t refusals_by_fragmentation = 0;
  for (const uint64_t seed : TestSeeds(/*count=*/100)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    const uint32_t block_count = static_cast<uint32_t>(rng.Between(1, 80));
    RegionPool pool(block_count);
    std::vector<bool> taken(block_count, false);
    std::vector<Region> held;
    const auto mark = [&](Region region, bool value) {
      for (uint32_t i = region.first; i < region.end(); ++i) {
        ASSERT_NE(taken[i], value) << "block " << i;
        taken[i] = value;
      }
    };
    for (int step = 0; step < 1000; ++step) {
      const uint64_t op = rng.Below(4);
      const uint32_t count = 1 + static_cast<uint32_t>(rng.Below(12));
      if (op == 0) {
        const auto region = pool.Allocate(count);
        ASSERT_EQ(region, BestFit(RunsOf(taken), count));
        if (region.has_value()) {
          mark(*region, true);
          held.push_back(*region);
        } else {
          refusals_by_fragmentation += pool.free_count() >= count;
        }
      } else if (op == 1 && count <= block_count) {
        const Region region{static_cast<uint32_t>(rng.Below(block_count - count + 1)), count};
        bool free = true;
        for (uint32_t i = region.first; i < region.end(); ++i) free &= !taken[i];
        ASSERT_EQ(pool.TakeAt(region), free);
        if (free) {
          mark(region, true);
          held.push_back(region);
        }
      } else if (op >= 2 && !held.empty()) {
        // A part of one, often all of it; what is left on either side stays taken.
        const size_t at = rng.Below(held.size());
        const Region region = held[at];
        held.erase(held.begin() + static_cast<ptrdiff_t>(at));
        uint32_t skip = 0, freed = region.count;
        if (rng.Below(2) == 0) {
          skip = static_cast<uint32_t>(rng.Below(region.count));
          freed = static_cast<uint32_t>(rng.Between(1, region.count - skip));
        }
        const Region part{region.first + skip, freed};
        pool.Free(part);
        mark(part, false);
        if (skip > 0) held.push_back({region.first, skip});
        if (part.end() < region.end()) held.push_back({part.end(), region.end() - part.end()});
      }
      if (::testing::Test::HasFatalFailure()) return;
      pool.CheckInvariants();
      const std::vector<Region> runs = RunsOf(taken);
      ASSERT_TRUE(std::equal(runs.begin(), runs.end(), pool.runs().begin(), pool.runs().end()));
    }
  }
  EXPECT_TRUE(std::getenv("KVASIR_TEST_SEED") != nullptr || refusals_by_fragmentation > 1000);
}

TEST(RegionPool, FragmentationIsTheShareThatOneRequestCannotGet) {
  RegionPool pool(10);
  EXPECT_EQ(pool.fragmentation(), 0.0);
  ASSERT_TRUE(pool.TakeAt({2, 1}));
  ASSERT_TRUE(pool.TakeAt({6, 1}));
  EXPECT_EQ(pool.free_count(), 8u);
  EXPECT_EQ(pool.largest_run(), 3u);
  EXPECT_DOUBLE_EQ(pool.fragmentation(), 1.0 - 3.0 / 8.0);
}

TEST(RegionPoolDeathTest, BlocksAreGivenBackOnce) {
  RegionPool pool(8);
  const auto region = pool.Allocate(4);
  pool.Free({region->first + 1, 2});
  EXPECT_DEATH(pool.Free({region->first + 2, 2}), "region_pool.cc");
}

}  // namespace
}  // namespace kvasir
