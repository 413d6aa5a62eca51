#include "kv/tail_store.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvasir {
namespace {

KvLayout Layout(KvType k) {
  KvLayout layout;
  layout.types.k = k;
  layout.groups.push_back(KvGroup{{0, 2}, 2, 64, 0});
  layout.groups.push_back(KvGroup{{1}, 2, 64, 32});
  return layout;
}

constexpr SequenceId kA{1}, kB{7}, kC{3};

TEST(TailStore, NothingStagedCostsNothing) {
  EXPECT_EQ(TailStore::SlotBytes(Layout(KvType::kInt8)), 0u);
  StatusOr<TailStore> store = TailStore::Create(Layout(KvType::kInt8), 4, 8);
  ASSERT_TRUE(store.ok());
  store->Begin(kA, 7);
  store->Advance(kA, 33);
  EXPECT_EQ(store->quantized(kA, 33), 33u);
  EXPECT_EQ(store->tail(kA, 32).memory[0], nullptr);
  EXPECT_FALSE(store->tail(kA, 32).complete);
  EXPECT_EQ(store->total_bytes(), 0u);
}

TEST(TailStore, AUnitIsQuantizedWhenALaterOneIsBegun) {
  StatusOr<TailStore> store = TailStore::Create(Layout(KvType::kInt4), 1, 8);
  ASSERT_TRUE(store.ok());
  store->Begin(kB, 0);
  EXPECT_FALSE(store->tail(kB, 0).complete);
  store->Advance(kB, 15);
  EXPECT_EQ(store->quantized(kB, 15), 0u);
  store->Advance(kB, 16);
  EXPECT_EQ(store->quantized(kB, 16), 0u);
  EXPECT_TRUE(store->tail(kB, 16).complete);
  store->Advance(kB, 17);
  EXPECT_EQ(store->quantized(kB, 17), 16u);
  EXPECT_FALSE(store->tail(kB, 17).complete);
  store->Advance(kB, 160);
  EXPECT_EQ(store->quantized(kB, 160), 144u);
  EXPECT_TRUE(store->tail(kB, 160).complete);
  store->End(kB);
  // Reused tokens are quantized, and nothing of them is in the tail.
  store->Begin(kA, 64);
  EXPECT_FALSE(store->tail(kA, 64).complete);
  store->Advance(kA, 64);
  EXPECT_EQ(store->quantized(kA, 64), 64u);
}

TEST(TailStore, SlotsAreApartAndForked) {
  const KvLayout layout = Layout(KvType::kInt4);
  const size_t bytes = layout.tail_bytes(0) + layout.tail_bytes(1);
  EXPECT_EQ(TailStore::SlotBytes(layout), bytes);
  StatusOr<TailStore> store = TailStore::Create(layout, 3, 8);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(store->total_bytes(), 3 * bytes);
  const auto fill = [&](SequenceId id, int value) {
    for (uint32_t group = 0; group < 2; ++group) {
      std::memset(store->tail(id, 0).memory[group], value + static_cast<int>(group),
                  layout.tail_bytes(group));
    }
  };
  const auto expect = [&](SequenceId id, uint8_t value) {
    for (uint32_t group = 0; group < 2; ++group) {
      const std::byte* memory = store->tail(id, store->quantized(id, 0)).memory[group];
      for (size_t i = 0; i < layout.tail_bytes(group); ++i) {
        ASSERT_EQ(memory[i], std::byte{static_cast<uint8_t>(value + group)});
      }
    }
  };
  store->Begin(kA, 0);
  store->Begin(kB, 0);
  fill(kA, 1);
  fill(kB, 3);
  store->Advance(kA, 21);
  store->Fork(kA, kC);
  EXPECT_EQ(store->quantized(kC, 21), 16u);
  expect(kA, 1);
  expect(kB, 3);
  expect(kC, 1);
  store->End(kB);
  store->Fork(kC, kB);
  expect(kB, 1);
}

TEST(TailStoreDeathTest, MisuseIsFound) {
  StatusOr<TailStore> store = TailStore::Create(Layout(KvType::kInt4), 1, 8);
  ASSERT_TRUE(store.ok());
  EXPECT_DEATH(store->Begin(kA, 8), "tail_store.cc");
  EXPECT_DEATH(store->End(kA), "tail_store.cc");
  store->Begin(kA, 16);
  EXPECT_DEATH(store->Begin(kB, 0), "tail_store.cc");
  EXPECT_DEATH(store->tail(kA, 40), "tail_store.cc");
}

}  // namespace
}  // namespace kvasir
