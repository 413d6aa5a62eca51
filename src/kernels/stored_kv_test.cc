// Units of every type: what is written is what is read, within half a step of the scale; sizes;
// values that are no numbers stay visible; tokens of a unit do not touch each other.
#include "kernels/stored_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/isa.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

constexpr StoredType kTypes[] = {StoredType::kF16, StoredType::kInt8, StoredType::kInt4};
constexpr uint32_t kHeadDims[] = {16, 48, 64, 80, 128, 256};

// [token][channel], with channels of very different size, as rotated keys have.
std::vector<float> RandomUnit(Rng& rng, uint32_t head_dim) {
  std::vector<float> size(head_dim);
  for (float& s : size) s = std::exp(rng.Normal());
  std::vector<float> x(size_t{kUnitTokens} * head_dim);
  for (size_t i = 0; i < x.size(); ++i) x[i] = rng.Normal() * size[i % head_dim];
  return x;
}

std::vector<std::byte> KUnit(StoredType type, uint32_t head_dim, const std::vector<float>& x) {
  std::vector<std::byte> unit(KUnitBytes(type, head_dim), std::byte{0xFF});
  std::vector<std::byte> half(KUnitBytes(StoredType::kF16, head_dim));
  for (uint32_t t = 0; t < kUnitTokens; ++t) {
    const std::span<const float> token(x.data() + size_t{t} * head_dim, head_dim);
    if (IsStaged(type)) {
      WriteK(StoredType::kF16, token, half.data(), t);
    } else {
      WriteK(type, token, unit.data(), t);
    }
  }
  if (IsStaged(type)) QuantizeKUnit(type, head_dim, half.data(), unit.data());
  return unit;
}

std::vector<std::byte> VUnit(StoredType type, uint32_t head_dim, const std::vector<float>& x) {
  std::vector<std::byte> unit(VUnitBytes(type, head_dim), std::byte{0xFF});
  for (uint32_t t = 0; t < kUnitTokens; ++t) {
    WriteV(type, {x.data() + size_t{t} * head_dim, head_dim}, unit.data(), t);
  }
  return unit;
}

TEST(StoredKv, SizesOfUnits) {
  for (const uint32_t head_dim : kHeadDims) {
    for (const StoredType type : kTypes) {
      EXPECT_EQ(KUnitBytes(type, head_dim) % 32, 0u);
      EXPECT_EQ(VUnitBytes(type, head_dim) % 32, 0u);
    }
  }
  EXPECT_EQ(KUnitBytes(StoredType::kF16, 64), 2048u);
  EXPECT_EQ(KUnitBytes(StoredType::kInt8, 64), 1024u + 32u);
  EXPECT_EQ(VUnitBytes(StoredType::kInt8, 256), 4096u + 4 * 32u);
  EXPECT_EQ(KUnitBytes(StoredType::kInt4, 64), 512u + 64 * 4u);
  EXPECT_EQ(VUnitBytes(StoredType::kInt4, 64), 512u + 64u);
}

// Half a step of the scale, the scale's own rounding to f16 and, of K staged as f16, the values'.
TEST(StoredKv, ValuesAreWithinHalfAStep) {
  Rng rng(1);
  for (const uint32_t head_dim : kHeadDims) {
    for (const StoredType type : kTypes) {
      const std::vector<float> x = RandomUnit(rng, head_dim);
      const std::vector<std::byte> k = KUnit(type, head_dim, x);
      const std::vector<std::byte> v = VUnit(type, head_dim, x);
      for (uint32_t t = 0; t < kUnitTokens; ++t) {
        for (uint32_t d = 0; d < head_dim; ++d) {
          const float value = x[size_t{t} * head_dim + d];
          float low = 0, high = 0;  // Of the values that share a scale.
          float k_low = value, k_high = value;
          for (uint32_t i = d / 64 * 64; i < std::min(d / 64 * 64 + 64, head_dim); ++i) {
            low = std::min(low, x[size_t{t} * head_dim + i]);
            high = std::max(high, x[size_t{t} * head_dim + i]);
          }
          for (uint32_t i = 0; i < kUnitTokens; ++i) {
            k_low = std::min(k_low, x[size_t{i} * head_dim + d]);
            k_high = std::max(k_high, x[size_t{i} * head_dim + d]);
          }
          const float largest = std::max(high, -low);
          float k_step = 2 * largest / 2048, v_step = k_step;  // f16
          if (type == StoredType::kInt8) k_step = v_step = largest / 127;
          if (type == StoredType::kInt4) {
            v_step = (high - low) / 15;
            k_step = (k_high - k_low) / 15;
          }
          const float k_size = std::max(std::abs(k_low), std::abs(k_high));
          const float k_slack = type == StoredType::kInt4 ? k_size / 512 : largest / 1024;
          EXPECT_NEAR(StoredK(type, head_dim, k.data(), t, d), value, k_step / 2 + k_slack);
          EXPECT_NEAR(StoredV(type, head_dim, v.data(), t, d), value, v_step / 2 + largest / 512);
        }
      }
    }
  }
}

TEST(StoredKv, EveryInstructionSetWritesTheSameBytes) {
  Rng rng(2);
  const std::vector<float> x = RandomUnit(rng, 80);
  for (const StoredType type : kTypes) {
    SetActiveIsa(SupportedIsas()[0]);
    const std::vector<std::byte> k = KUnit(type, 80, x);
    const std::vector<std::byte> v = VUnit(type, 80, x);
    for (const Isa isa : SupportedIsas()) {
      SetActiveIsa(isa);
      EXPECT_EQ(KUnit(type, 80, x), k) << IsaName(isa);
      EXPECT_EQ(VUnit(type, 80, x), v) << IsaName(isa);
    }
  }
}

// In any order, and over whatever was there before.
TEST(StoredKv, TokensOfAUnitAreIndependent) {
  Rng rng(3);
  for (const uint32_t head_dim : kHeadDims) {
    const std::vector<float> x = RandomUnit(rng, head_dim);
    for (const StoredType type : kTypes) {
      const std::vector<std::byte> expected = VUnit(type, head_dim, x);
      std::vector<std::byte> unit(expected.size(), std::byte{0x5A});
      for (uint32_t t = kUnitTokens; t-- > 0;) {
        WriteV(type, {x.data() + size_t{t} * head_dim, head_dim}, unit.data(), t);
      }
      EXPECT_EQ(unit, expected);
    }
    const std::vector<std::byte> expected = KUnit(StoredType::kInt8, head_dim, x);
    std::vector<std::byte> unit(expected.size(), std::byte{0x5A});
    for (uint32_t t = kUnitTokens; t-- > 0;) {
      WriteK(StoredType::kInt8, {x.data() + size_t{t} * head_dim, head_dim}, unit.data(), t);
    }
    EXPECT_EQ(unit, expected);
  }
}

TEST(StoredKv, WhatIsNoNumberStaysVisible) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const StoredType type : {StoredType::kInt8, StoredType::kInt4}) {
      std::vector<float> x(size_t{kUnitTokens} * 64, 0.5f);
      x[3 * 64 + 7] = bad;
      EXPECT_TRUE(std::isnan(StoredK(type, 64, KUnit(type, 64, x).data(), 3, 7)));
      EXPECT_TRUE(std::isnan(StoredV(type, 64, VUnit(type, 64, x).data(), 3, 7)));
      EXPECT_NEAR(StoredV(type, 64, VUnit(type, 64, x).data(), 2, 7), 0.5f, 1e-3f);
    }
  }
}

TEST(StoredKv, ConstantsAndZerosAreExact) {
  for (const float value : {0.0f, 0.25f, -3.0f, 1e-6f}) {
    const std::vector<float> x(size_t{kUnitTokens} * 64, value);
    const float expected = FloatFromHalf(HalfFromFloat(value));
    EXPECT_EQ(StoredK(StoredType::kInt4, 64, KUnit(StoredType::kInt4, 64, x).data(), 5, 9),
              expected);
    EXPECT_EQ(StoredV(StoredType::kInt4, 64, VUnit(StoredType::kInt4, 64, x).data(), 5, 9),
              expected);
    EXPECT_NEAR(StoredK(StoredType::kInt8, 64, KUnit(StoredType::kInt8, 64, x).data(), 5, 9), value,
                std::abs(value) / 1000 + 1e-6f);
  }
}

}  // namespace
}  // namespace kvasir
