#include "kv/block_table.h"

#include <gtest/gtest.h>

#include <array>

namespace kvasir {
namespace {

std::array<std::byte, 16> g_memory;
std::byte* Address(uint32_t i) { return g_memory.data() + i; }

TEST(BlockTable, IdsAndAddressesStaySideBySide) {
  BlockTable table(4);
  table.Append(BlockId{7}, Address(0));
  table.Append(BlockId{3}, Address(1));
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.id(1), BlockId{3});
  EXPECT_EQ(table.addresses()[0], Address(0));
  EXPECT_EQ(table.Replace(1, BlockId{9}, Address(2)), BlockId{3});
  EXPECT_EQ(table.addresses()[1], Address(2));
  EXPECT_EQ(table.RemoveLast(), BlockId{9});
  EXPECT_EQ(table.size(), 1u);
  table.CheckInvariants();
}

TEST(BlockTable, EntriesBeforeTheWindowHoldNothing) {
  BlockTable table(4);
  table.AppendAbsent();
  table.Append(BlockId{1}, Address(1));
  table.Append(BlockId{2}, Address(2));
  EXPECT_EQ(table.first_held(), 1u);
  EXPECT_EQ(table.DropFirst(), BlockId{1});
  EXPECT_EQ(table.id(1), kNoBlock);
  EXPECT_EQ(table.addresses()[1], nullptr);
  EXPECT_EQ(table.held_count(), 1u);
  table.CheckInvariants();
  EXPECT_EQ(table.DropFirst(), BlockId{2});
  table.Clear();
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.first_held(), 0u);
  table.CheckInvariants();
}

// Kernels keep the pointer for a whole step.
TEST(BlockTable, NeverMovesItsArrays) {
  BlockTable table(100);
  table.Append(BlockId{0}, Address(0));
  std::byte* const* const before = table.addresses().data();
  for (uint32_t i = 1; i < 100; ++i) table.Append(BlockId{i}, Address(i % 16));
  EXPECT_EQ(table.addresses().data(), before);
}

TEST(BlockTableDeathTest, Misuse) {
  BlockTable table(1);
  EXPECT_DEATH(table.RemoveLast(), "block_table.cc");
  EXPECT_DEATH(table.DropFirst(), "block_table.cc");
  EXPECT_DEATH(table.Append(kNoBlock, Address(0)), "block_table.cc");
  EXPECT_DEATH(table.Append(BlockId{0}, nullptr), "block_table.cc");
  table.Append(BlockId{0}, Address(0));
  EXPECT_DEATH(table.Append(BlockId{1}, Address(1)), "block_table.cc");
  EXPECT_DEATH(table.Replace(1, BlockId{1}, Address(1)), "block_table.cc");
  EXPECT_DEATH(table.Clear(), "block_table.cc");
}

TEST(BlockTableDeathTest, NothingAbsentAfterABlock) {
  BlockTable table(2);
  table.Append(BlockId{0}, Address(0));
  EXPECT_DEATH(table.AppendAbsent(), "block_table.cc");
}

}  // namespace
}  // namespace kvasir
