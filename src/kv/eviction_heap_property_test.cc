#include <fmt/core.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/rng.h"
#include "kv/eviction_heap.h"

namespace kvasir {
namespace {

TEST(EvictionHeapProperty, AgreesWithAnOrderedSet) {
  for (const uint64_t seed : TestSeeds(/*count=*/50)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    const uint32_t item_count = static_cast<uint32_t>(rng.Between(1, 80));
    EvictionHeap heap(item_count);
    std::set<std::tuple<uint64_t, uint64_t, uint32_t>> order;
    std::map<uint32_t, std::pair<uint64_t, uint64_t>> rank;
    for (int step = 0; step < 1500; ++step) {
      const uint32_t item = static_cast<uint32_t>(rng.Below(item_count));
      if (rank.count(item) == 0) {
        rank[item] = {rng.Below(8), rng.Below(4)};  // Few values: ties are common.
        heap.Push(item, rank[item].first, rank[item].second);
        order.emplace(rank[item].first, rank[item].second, item);
      } else if (rng.Below(2) == 0) {
        heap.Remove(item);
        order.erase({rank[item].first, rank[item].second, item});
        rank.erase(item);
      }
      ASSERT_EQ(heap.size(), order.size());
      ASSERT_EQ(heap.Contains(item), rank.count(item) == 1);
      ASSERT_EQ(heap.empty(), order.empty());
      if (!order.empty()) {
        ASSERT_EQ(heap.Top(), std::get<2>(*order.begin()));
        ASSERT_EQ(heap.top_priority(), std::get<0>(*order.begin()));
      }
      heap.CheckInvariants();
    }
  }
}

TEST(EvictionHeapDeathTest, Misuse) {
  EvictionHeap heap(2);
  EXPECT_DEATH(heap.Top(), "eviction_heap.cc");
  EXPECT_DEATH(heap.Remove(0), "eviction_heap.cc");
  EXPECT_DEATH(heap.Push(2, 0), "eviction_heap.cc");
  heap.Push(1, 5);
  EXPECT_DEATH(heap.Push(1, 6), "eviction_heap.cc");
}

}  // namespace
}  // namespace kvasir
