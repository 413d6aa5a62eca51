#include "kv/kv_layout.h"

#include <gtest/gtest.h>

#include <set>

namespace kvasir {
namespace {

KvLayout SmolLm2() {
  KvLayout layout;
  KvGroup group;
  for (uint32_t layer = 0; layer < 30; ++layer) group.layers.push_back(layer);
  group.kv_heads = 3;
  group.head_dim = 64;
  layout.groups.push_back(group);
  return layout;
}

KvLayout Gemma3() {
  KvLayout layout;
  layout.groups.push_back(KvGroup{{5, 11, 17}, 1, 256, 0});
  layout.groups.push_back(KvGroup{{}, 1, 256, 512});
  for (uint32_t layer = 0; layer < 18; ++layer) {
    if (layer % 6 != 5) layout.groups[1].layers.push_back(layer);
  }
  return layout;
}

TEST(KvLayout, BytesPerTokenOfTheTwoModels) {
  EXPECT_TRUE(SmolLm2().Validate().ok());
  EXPECT_EQ(SmolLm2().bytes_per_token(), 23040u);
  EXPECT_TRUE(Gemma3().Validate().ok());
  EXPECT_EQ(Gemma3().bytes_per_token(0), 3072u);
  EXPECT_EQ(Gemma3().bytes_per_token(1), 15360u);
  EXPECT_EQ(Gemma3().block_bytes(1), 15360u * 16);
}

// Every byte of a block belongs to exactly one (slot, head, K or V), whatever the block size.
TEST(KvLayout, OffsetsTileTheBlock) {
  for (const uint32_t block_tokens : {16u, 32u, 64u, 128u, 256u}) {
    for (KvLayout layout : {SmolLm2(), Gemma3()}) {
      layout.block_tokens = block_tokens;
      ASSERT_TRUE(layout.Validate().ok());
      for (uint32_t group = 0; group < layout.group_count(); ++group) {
        const KvGroup& g = layout.groups[group];
        const size_t run_bytes = size_t{block_tokens} * g.head_dim * 2;
        std::set<size_t> offsets;
        for (uint32_t slot = 0; slot < g.layers.size(); ++slot) {
          for (uint32_t head = 0; head < g.kv_heads; ++head) {
            for (const size_t offset :
                 {layout.k_offset(group, slot, head), layout.v_offset(group, slot, head)}) {
              EXPECT_EQ(offset % 64, 0u);
              EXPECT_EQ(offset % run_bytes, 0u);
              EXPECT_LT(offset, layout.block_bytes(group));
              offsets.insert(offset);
            }
          }
        }
        EXPECT_EQ(offsets.size() * run_bytes, layout.block_bytes(group));
      }
    }
  }
}

TEST(KvLayout, PlaceOfFindsGroupAndSlot) {
  const KvLayout layout = Gemma3();
  EXPECT_EQ(layout.PlaceOf(11).group, 0u);
  EXPECT_EQ(layout.PlaceOf(11).slot, 1u);
  EXPECT_EQ(layout.PlaceOf(6).group, 1u);
  EXPECT_EQ(layout.PlaceOf(6).slot, 5u);
}

TEST(KvLayout, ValidateNamesWhatIsWrong) {
  const auto message = [](const KvLayout& layout) {
    return std::string(MessageOf(layout.Validate()));
  };
  for (const uint32_t block_tokens : {0u, 8u, 17u, 48u, 512u}) {
    KvLayout layout = SmolLm2();
    layout.block_tokens = block_tokens;
    EXPECT_NE(message(layout).find("choose 16, 32, 64, 128 or 256"), std::string::npos);
  }
  KvLayout layout = SmolLm2();
  layout.groups[0].head_dim = 72;
  EXPECT_NE(message(layout).find("head dimension 72"), std::string::npos);
  layout = SmolLm2();
  layout.groups[0].kv_heads = 0;
  EXPECT_NE(message(layout).find("0 KV heads"), std::string::npos);
  layout = SmolLm2();
  layout.groups[0].window = 512;
  EXPECT_NE(message(layout).find("group 0 must have full attention"), std::string::npos);
  layout = Gemma3();
  layout.groups[1].window = 0;
  EXPECT_NE(message(layout).find("group 1 has no window"), std::string::npos);
  layout = Gemma3();
  layout.groups[1].layers.push_back(17);
  EXPECT_NE(message(layout).find("layer 17 is listed twice"), std::string::npos);
  layout = Gemma3();
  layout.groups[1].layers.clear();
  EXPECT_NE(message(layout).find("group 1: it has no layer"), std::string::npos);
  layout.groups.clear();
  EXPECT_NE(message(layout).find("0 KV groups"), std::string::npos);
}

TEST(KvLayoutDeathTest, OutOfRange) {
  const KvLayout layout = Gemma3();
  EXPECT_DEATH(layout.block_bytes(2), "kv_layout.cc");
  EXPECT_DEATH(layout.k_offset(0, 3, 0), "kv_layout.cc");
  EXPECT_DEATH(layout.v_offset(0, 0, 1), "kv_layout.cc");
  EXPECT_DEATH(layout.PlaceOf(18), "kv_layout.cc");
}

}  // namespace
}  // namespace kvasir
