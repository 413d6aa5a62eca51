#include "kernels/head_spread.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/stored_kv.h"

namespace kvasir {
namespace {

std::vector<float> RandomHead(Rng& rng, size_t size) {
  std::vector<float> head(size);
  for (float& v : head) v = rng.Normal();
  return head;
}

// The matrix by its definition: the sign of entry (i, j) is the parity of the bits i and j share.
std::vector<double> SpreadSlowly(const std::vector<float>& head) {
  std::vector<double> out(head.size());
  for (size_t first = 0; first < head.size();) {
    size_t width = 64;
    while (width > head.size() - first) width /= 2;
    for (size_t i = 0; i < width; ++i) {
      double sum = 0;
      for (size_t j = 0; j < width; ++j) {
        sum += std::popcount(i & j) % 2 == 0 ? head[first + j] : -head[first + j];
      }
      out[first + i] = sum / std::sqrt(static_cast<double>(width));
    }
    first += width;
  }
  return out;
}

TEST(HeadSpreadTest, IsTheWalshHadamardMatrixOfEachGroup) {
  Rng rng(1);
  for (size_t size = 16; size <= kMaxHeadDim; size += 16) {
    const std::vector<float> head = RandomHead(rng, size);
    std::vector<float> spread = head;
    SpreadHead(spread);
    const std::vector<double> expected = SpreadSlowly(head);
    for (size_t i = 0; i < size; ++i) ASSERT_NEAR(spread[i], expected[i], 4e-6) << size << " " << i;
    SpreadHead(spread);
    for (size_t i = 0; i < size; ++i) ASSERT_NEAR(spread[i], head[i], 4e-6) << size << " " << i;
  }
}

TEST(HeadSpreadTest, ProductsStayAsTheyAre) {
  Rng rng(2);
  for (const size_t size : {64u, 96u, 112u, 256u}) {
    std::vector<float> q = RandomHead(rng, size), k = RandomHead(rng, size);
    double before = 0, after = 0;
    for (size_t i = 0; i < size; ++i) before += double{q[i]} * k[i];
    SpreadHead(q);
    SpreadHead(k);
    for (size_t i = 0; i < size; ++i) after += double{q[i]} * k[i];
    EXPECT_NEAR(after, before, 2e-5) << size;
  }
}

// What it is for: a channel that is large in every token no longer sets the others' rounding.
TEST(HeadSpreadTest, ALargeChannelCostsTheOthersLess) {
  Rng rng(3);
  std::vector<float> head = RandomHead(rng, 64);
  head[5] = 40;
  const auto error = [&](bool spread) {
    std::vector<float> given = head;
    if (spread) SpreadHead(given);
    std::vector<std::byte> unit(KUnitBytes(StoredType::kInt8, 64));
    WriteK(StoredType::kInt8, given, unit.data(), 3);
    std::vector<float> read(64);
    for (uint32_t d = 0; d < 64; ++d) read[d] = StoredK(StoredType::kInt8, 64, unit.data(), 3, d);
    if (spread) SpreadHead(read);
    double squares = 0;
    for (size_t d = 0; d < 64; ++d) squares += (double{read[d]} - head[d]) * (read[d] - head[d]);
    return squares;
  };
  EXPECT_LT(error(true), error(false) / 8);
}

TEST(HeadSpreadTest, WhatIsNoNumberIsSeenInItsWholeGroup) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> head(128, 1.0f);
    head[70] = bad;
    SpreadHead(head);
    for (size_t i = 0; i < 128; ++i) ASSERT_EQ(std::isfinite(head[i]), i < 64) << i;
  }
}

}  // namespace
}  // namespace kvasir
