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

TEST(TailStore, NothingStagedCostsNothing) {
  EXPECT_EQ(TailStore::SlotBytes(Layout(KvType::kInt8)), 0u);
  StatusOr<TailStore> store = TailStore::Create(Layout(KvType::kInt8), 4);
  ASSERT_TRUE(store.ok());
  store->Begin(2, 7);
  store->Advance(2, 33);
  EXPECT_EQ(store->quantized(2, 33), 33u);
  EXPECT_EQ(store->tail(2, 32).memory[0], nullptr);
  EXPECT_FALSE(store->tail(2, 32).complete);
  EXPECT_EQ(store->total_bytes(), 0u);
}

TEST(TailStore, AUnitIsQuantizedWhenALaterOneIsBegun) {
  StatusOr<TailStore> store = TailStore::Create(Layout(KvType::kInt4), 3);
  ASSERT_TRUE(store.ok());
  store->Begin(1, 0);
  EXPECT_FALSE(store->tail(1, 0).complete);
  store->Advance(1, 15);
  EXPECT_EQ(store->quantized(1, 15), 0u);
  store->Advance(1, 16);
  EXPECT_EQ(store->quantized(1, 16), 0u);
  EXPECT_TRUE(store->tail(1, 16).complete);
  store->Advance(1, 17);
  EXPECT_EQ(store->quantized(1, 17), 16u);
  EXPECT_FALSE(store->tail(1, 17).complete);
  store->Advance(1, 160);
  EXPECT_EQ(store->quantized(1, 160), 144u);
  EXPECT_TRUE(store->tail(1, 160).complete);
  // Reused tokens are quantized, and nothing of them is in the tail.
  store->Begin(1, 64);
  EXPECT_FALSE(store->tail(1, 64).complete);
  EXPECT_EQ(store->quantized(1, 64), 64u);
}

TEST(TailStore, SlotsAreApartAndCopied) {
  const KvLayout layout = Layout(KvType::kInt4);
  const size_t bytes = layout.tail_bytes(0) + layout.tail_bytes(1);
  EXPECT_EQ(TailStore::SlotBytes(layout), bytes);
  StatusOr<TailStore> store = TailStore::Create(layout, 3);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(store->total_bytes(), 3 * bytes);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    store->Begin(slot, 0);
    for (uint32_t group = 0; group < 2; ++group) {
      std::memset(store->tail(slot, 0).memory[group], static_cast<int>(slot * 2 + group + 1),
                  layout.tail_bytes(group));
    }
  }
  store->Advance(0, 21);
  store->Copy(0, 2);
  EXPECT_EQ(store->quantized(2, 21), 16u);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    for (uint32_t group = 0; group < 2; ++group) {
      const std::byte* memory = store->tail(slot, 16).memory[group];
      const std::byte expected{static_cast<uint8_t>((slot == 1 ? 3 : 1) + group)};
      for (size_t i = 0; i < layout.tail_bytes(group); ++i) ASSERT_EQ(memory[i], expected);
    }
  }
}

}  // namespace
}  // namespace kvasir
