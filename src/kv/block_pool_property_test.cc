#include <fmt/core.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>

#include "base/rng.h"
#include "kv/block_pool.h"

namespace kvasir {
namespace {

// Random operations against the simplest thing that could be right: a map of owner counts.
TEST(BlockPoolProperty, AgreesWithCountingModel) {
  for (const uint64_t seed : TestSeeds(/*count=*/50)) {  // KVASIR_TEST_SEED=n replays one.
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    const uint32_t block_count = static_cast<uint32_t>(rng.Between(1, 64));
    BlockPool pool(block_count);
    std::map<BlockId, uint32_t> model;  // Pinned blocks only.

    for (int step = 0; step < 1000; ++step) {
      const uint64_t op = rng.Below(3);
      if (op == 0) {
        const std::optional<BlockId> id = pool.Allocate();
        ASSERT_EQ(id.has_value(), model.size() < block_count);
        if (id.has_value()) {
          ASSERT_TRUE(model.emplace(*id, 1).second) << "handed out a pinned block";
        }
      } else if (!model.empty()) {
        const auto it = std::next(model.begin(), static_cast<ptrdiff_t>(rng.Below(model.size())));
        if (op == 1) {
          pool.Pin(it->first);
          ++it->second;
        } else {
          pool.Unpin(it->first);
          if (--it->second == 0) model.erase(it);
        }
      }
      ASSERT_EQ(pool.free_count(), block_count - model.size());
      for (const auto& [id, pins] : model) ASSERT_EQ(pool.pins(id), pins);
      pool.CheckInvariants();
    }
  }
}

TEST(BlockPool, HandsOutEachBlockOnce) {
  BlockPool pool(3);
  EXPECT_EQ(pool.Allocate(), BlockId{0});
  EXPECT_EQ(pool.Allocate(), BlockId{1});
  EXPECT_EQ(pool.Allocate(), BlockId{2});
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  pool.Unpin(BlockId{1});
  EXPECT_EQ(pool.Allocate(), BlockId{1});
}

// The negative space: a caller bug must stop the process, in release builds too.
TEST(BlockPoolDeathTest, UnpinOfFreeBlock) {
  BlockPool pool(1);
  EXPECT_DEATH(pool.Unpin(BlockId{0}), "block_pool.cc");
}

TEST(BlockPoolDeathTest, PinOfFreeBlock) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.Pin(BlockId{1}), "block_pool.cc");
}

TEST(BlockPoolDeathTest, BlockOutsideThePool) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.Pin(BlockId{2}), "block_pool.cc");
  EXPECT_DEATH(pool.Unpin(kNoBlock), "block_pool.cc");
}

TEST(BlockPoolDeathTest, PoolWithoutBlocks) { EXPECT_DEATH(BlockPool(0), "block_pool.cc"); }

}  // namespace
}  // namespace kvasir
