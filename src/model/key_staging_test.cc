#include "model/key_staging.h"

#include <gtest/gtest.h>

#include "kernels/attention.h"

namespace kvasir {
namespace {

// kv/ may not know kernels/, so both know the sizes of units.
TEST(KeyStaging, LayoutAndKernelsAgreeOnUnits) {
  for (const uint32_t head_dim : {16u, 48u, 64u, 80u, 128u, 256u}) {
    for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kInt4}) {
      KvLayout layout;
      layout.types = {type, type};
      layout.groups.push_back(KvGroup{{0}, 1, head_dim, 0});
      EXPECT_EQ(layout.k_unit_bytes(0), KUnitBytes(StoredTypeOf(type), head_dim));
      EXPECT_EQ(layout.v_unit_bytes(0), VUnitBytes(StoredTypeOf(type), head_dim));
      EXPECT_EQ(layout.staged(), IsStaged(StoredTypeOf(type)));
    }
  }
}

TEST(KeyStaging, ScratchHoldsEveryUnitThatAStepGoesBeyond) {
  KvLayout layout;
  layout.types = {KvType::kInt4, KvType::kInt4};
  layout.groups.push_back(KvGroup{{0}, 2, 64, 0});
  StepLimits limits;
  limits.max_rows = 40;
  limits.max_sequences = 20;
  KeyStaging staging(layout, limits);
  std::vector<std::byte> scratch(staging.scratch_bytes());
  staging.set_scratch(scratch.data());
  std::vector<std::byte> tail(layout.tail_bytes(0));
  const std::vector<TokenId> tokens(40);
  const auto plan = [&](uint32_t sequences, uint32_t rows, uint32_t start) {
    Batch batch;
    for (uint32_t i = 0; i < sequences; ++i) {
      BatchSequence sequence;
      sequence.tokens = std::span(tokens).first(rows);
      sequence.start = start;
      sequence.tail.memory[0] = tail.data();
      batch.sequences.push_back(sequence);
    }
    staging.Plan(batch);  // Checks that all fits.
    const size_t unit = KUnitBytes(StoredType::kF16, 64);
    for (uint32_t s = 0; s < sequences; ++s) {
      for (uint32_t position = start; position < start + rows; ++position) {
        const std::byte* own = staging.OwnUnit({0, 0, 1}, s, position);
        if (position / 16 == (start + rows - 1) / 16) {
          EXPECT_EQ(own, tail.data() + unit);
        } else {
          EXPECT_GE(own, scratch.data());
          EXPECT_LE(own + unit, scratch.data() + scratch.size());
        }
      }
    }
    return staging.crosses();
  };
  EXPECT_TRUE(plan(20, 2, 15));  // As many borders as possible.
  EXPECT_TRUE(plan(1, 40, 9));
  EXPECT_TRUE(plan(1, 17, 0));
  EXPECT_FALSE(plan(20, 2, 14));
  EXPECT_FALSE(plan(1, 16, 32));
}

}  // namespace
}  // namespace kvasir
