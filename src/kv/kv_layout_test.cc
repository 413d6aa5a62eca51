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

TEST(KvLayout, BytesPerTokenOfEveryType) {
  const auto bytes = [](KvLayout layout, KvType k, KvType v) {
    layout.types = {k, v};
    EXPECT_TRUE(layout.Validate().ok());
    return layout.bytes_per_token();
  };
  EXPECT_EQ(bytes(SmolLm2(), KvType::kInt8, KvType::kInt8), 11880u);
  EXPECT_EQ(bytes(SmolLm2(), KvType::kInt4, KvType::kInt4), 7560u);
  EXPECT_EQ(bytes(SmolLm2(), KvType::kInt8, KvType::kInt4), 90u * (66 + 36));
  EXPECT_EQ(bytes(SmolLm2(), KvType::kF16, KvType::kInt8), 90u * (128 + 66));
  EXPECT_EQ(bytes(Gemma3(), KvType::kInt8, KvType::kInt8), 18u * 2 * (256 + 8));
  EXPECT_EQ(bytes(Gemma3(), KvType::kInt4, KvType::kInt4), 18u * (128 + 64 + 128 + 16));
}

// Every byte of a block belongs to exactly one (slot, head, K or V), whatever the block size and
// the types; a block may end with 32 bytes more.
TEST(KvLayout, OffsetsTileTheBlock) {
  constexpr KvType kTypes[] = {KvType::kF16, KvType::kInt8, KvType::kInt4};
  for (uint32_t i = 0; i < 5 * 9; ++i) {
    for (KvLayout layout : {SmolLm2(), Gemma3()}) {
      layout.block_tokens = 16u << i % 5;
      layout.types = {kTypes[i / 5 % 3], kTypes[i / 15]};
      ASSERT_TRUE(layout.Validate().ok());
      for (uint32_t group = 0; group < layout.group_count(); ++group) {
        const KvGroup& g = layout.groups[group];
        const uint32_t units = layout.block_tokens / 16;
        size_t expected = 0;
        for (uint32_t slot = 0; slot < g.layers.size(); ++slot) {
          for (uint32_t head = 0; head < g.kv_heads; ++head) {
            EXPECT_EQ(layout.k_offset(group, slot, head), expected);
            expected += units * layout.k_unit_bytes(group);
            EXPECT_EQ(layout.v_offset(group, slot, head), expected);
            expected += units * layout.v_unit_bytes(group);
            EXPECT_EQ(expected % 32, 0u);
          }
        }
        EXPECT_EQ(layout.block_bytes(group) % 64, 0u);
        EXPECT_GE(layout.block_bytes(group), expected);
        EXPECT_LT(layout.block_bytes(group), expected + 64);
      }
    }
  }
}

TEST(KvLayout, TailHoldsOneF16UnitOfKeys) {
  KvLayout layout = Gemma3();
  EXPECT_FALSE(layout.staged());
  EXPECT_EQ(layout.tail_bytes(1), 0u);
  layout.types.k = KvType::kInt4;
  EXPECT_TRUE(layout.staged());
  EXPECT_EQ(layout.tail_bytes(0), 3u * 256 * 16 * 2);
  EXPECT_EQ(layout.tail_bytes(1), 15u * 256 * 16 * 2);
  EXPECT_EQ(layout.tail_offset(1, 14, 0), 14u * 256 * 16 * 2);
  layout.groups[1].window = 16;
  EXPECT_NE(std::string(MessageOf(layout.Validate())).find("window of more than 16"),
            std::string::npos);
}

TEST(KvLayout, NamesOfTypes) {
  for (const char* text : {"f16", "int8", "int4", "k=int8,v=int4", "k=f16,v=int8"}) {
    const auto types = ParseKvTypes(text);
    ASSERT_TRUE(types.ok()) << text;
    EXPECT_EQ(KvTypesName(*types), text);
  }
  EXPECT_EQ(*ParseKvTypes("v=int4,k=int8"), (KvTypes{KvType::kInt8, KvType::kInt4}));
  for (const char* text : {"", "int5", "k=int8", "k=int8,v=", "k=int8,v=int4,", "int8,int4"}) {
    EXPECT_FALSE(ParseKvTypes(text).ok()) << text;
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
