// Every row operation on every instruction set this CPU has: against the double-precision twin at
// the bound of the header, and bit for bit between instruction sets.
#include "kernels/row_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/isa.h"
#include "kernels/logits_row.h"
#include "kernels/row_ops_table.h"

namespace kvasir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Lengths around one to four vectors of 16, and long rows around the blocks of 1024.
const std::vector<size_t> kSizes = {1,  2,  7,  8,  15, 16,  17,  31,   32,   33,   47,
                                    48, 49, 63, 64, 65, 100, 576, 1023, 1024, 1041, 2048};

class RowOpsTest : public ::testing::Test {
 protected:
  ~RowOpsTest() override { SetActiveIsa(SupportedIsas().back()); }
};

// Runs `produce` once per instruction set and expects the same bytes each time; returns them.
std::vector<float> SameOnEveryIsa(const std::string& what,
                                  const std::function<std::vector<float>()>& produce) {
  std::vector<float> first;
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    const std::vector<float> result = produce();
    if (isa == SupportedIsas().front()) {
      first = result;
    } else {
      EXPECT_EQ(result.size(), first.size());
      EXPECT_EQ(std::memcmp(result.data(), first.data(), first.size() * sizeof(float)), 0)
          << what << " differs on " << IsaName(isa);
    }
  }
  return first;
}

std::vector<float> RandomRow(Rng& rng, size_t size, float deviation = 1) {
  std::vector<float> row(size);
  for (float& v : row) v = rng.Normal() * deviation;
  return row;
}

// A row of `size` floats at `shift` floats from an allocation's start; bytes around it are guarded
// by a pattern.
class ShiftedRow {
 public:
  ShiftedRow(const std::vector<float>& values, size_t shift)
      : shift_(shift), size_(values.size()), buffer_(values.size() + 32, kGuard) {
    std::copy(values.begin(), values.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(shift));
  }
  std::span<float> row() { return {buffer_.data() + shift_, size_}; }
  std::vector<float> values() { return {row().begin(), row().end()}; }
  bool GuardsIntact() const {
    for (size_t i = 0; i < buffer_.size(); ++i) {
      if ((i < shift_ || i >= shift_ + size_) && buffer_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr float kGuard = -77.25f;
  size_t shift_;
  size_t size_;
  std::vector<float> buffer_;
};

TEST_F(RowOpsTest, RmsNormFollowsItsTwin) {
  Rng rng(1);
  for (const size_t size : kSizes) {
    const std::vector<float> x = RandomRow(rng, size, 3);
    const std::vector<float> weight = RandomRow(rng, size);
    std::vector<double> expected(size);
    RmsNormReference(x, weight, 1e-5f, expected);
    for (const size_t shift : {0, 1, 5}) {
      const auto got = SameOnEveryIsa("RmsNorm", [&] {
        ShiftedRow in(x, shift), out(std::vector<float>(size), 2 * shift);
        RmsNorm(in.row(), weight, 1e-5f, out.row());
        EXPECT_TRUE(out.GuardsIntact());
        RmsNorm(in.row(), weight, 1e-5f, in.row());  // In place
        EXPECT_EQ(in.values(), out.values());
        return out.values();
      });
      for (size_t c = 0; c < size; ++c) {
        ASSERT_NEAR(got[c], expected[c], std::abs(expected[c]) * kRmsNormMaxRelError) << size;
      }
    }
  }
}

TEST_F(RowOpsTest, RmsNormOfZerosIsZeroAndEpsCounts) {
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    std::vector<float> x(40, 0.0f), weight(40, 2.0f), out(40, 9.0f);
    RmsNorm(x, weight, 1e-6f, out);
    EXPECT_THAT(out, ::testing::Each(0.0f));
    std::fill(x.begin(), x.end(), 1.0f);
    RmsNorm(x, weight, 3.0f, out);  // 1 * 2 / sqrt(1 + 3)
    EXPECT_THAT(out, ::testing::Each(1.0f));
  }
}

TEST_F(RowOpsTest, RopeFollowsItsTwin) {
  Rng rng(2);
  for (const size_t dim : {2, 6, 14, 16, 18, 30, 32, 34, 62, 64, 66, 128, 256}) {
    for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalves}) {
      const std::vector<float> x = RandomRow(rng, dim);
      std::vector<float> cosine(dim / 2), sine(dim / 2);
      std::vector<double> frequencies(dim / 2);
      RopeFrequencies(1e5, frequencies);
      RopeTable(static_cast<uint32_t>(rng.Below(8192)), frequencies, cosine, sine);
      std::vector<double> expected(x.begin(), x.end());
      RopeReference(expected, std::vector<double>(cosine.begin(), cosine.end()),
                    std::vector<double>(sine.begin(), sine.end()), pairing);
      for (const size_t shift : {0, 3}) {
        const auto got = SameOnEveryIsa("Rope", [&] {
          ShiftedRow head(x, shift);
          Rope(head.row(), cosine, sine, pairing);
          EXPECT_TRUE(head.GuardsIntact());
          return head.values();
        });
        for (size_t c = 0; c < dim; ++c) ASSERT_NEAR(got[c], expected[c], 1e-6) << dim;
      }
    }
  }
}

TEST_F(RowOpsTest, RopeTableIsExactToFloat) {
  constexpr uint32_t kPairs = 32;
  std::vector<double> frequencies(kPairs);
  std::vector<float> cosine(kPairs), sine(kPairs);
  RopeFrequencies(1e6, frequencies);
  RopeTable(0, frequencies, cosine, sine);
  EXPECT_THAT(cosine, ::testing::Each(1.0f));
  EXPECT_THAT(sine, ::testing::Each(0.0f));
  Rng rng(17);
  int different = 0;
  for (int i = 0; i < 2000; ++i) {
    const uint32_t position = static_cast<uint32_t>(rng.Below(i % 2 == 0 ? 1u << 15 : 1u << 24));
    RopeTable(position, frequencies, cosine, sine);
    for (uint32_t pair = 0; pair < kPairs; ++pair) {
      const long double angle = static_cast<long double>(position * frequencies[pair]);
      different += cosine[pair] != static_cast<float>(std::cos(angle));
      different += sine[pair] != static_cast<float>(std::sin(angle));
    }
  }
  EXPECT_EQ(different, 0) << "of 128,000 values";
  // Angle of pair 0 is the position itself.
  RopeTable(1, frequencies, cosine, sine);
  EXPECT_FLOAT_EQ(sine[0], 0.84147098f);
  for (uint32_t pair = 0; pair < kPairs; ++pair) {
    EXPECT_NEAR(frequencies[pair], std::pow(1e6, -2.0 * pair / (2 * kPairs)), 1e-15);
  }
}

TEST_F(RowOpsTest, RopeTableTakesAMagnitude) {
  std::vector<double> frequencies(8);
  std::vector<float> cosine(8), sine(8), plain_cosine(8), plain_sine(8);
  RopeFrequencies(1e4, frequencies);
  RopeTable(77, frequencies, plain_cosine, plain_sine);
  RopeTable(77, frequencies, cosine, sine, 1.25);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(cosine[i], 1.25 * std::cos(77 * frequencies[i]), 1e-7);
    EXPECT_NEAR(sine[i], 1.25 * std::sin(77 * frequencies[i]), 1e-7);
    EXPECT_EQ(plain_cosine[i], static_cast<float>(std::cos(77 * frequencies[i])));
  }
}

TEST_F(RowOpsTest, GatedActivationFollowsItsTwin) {
  Rng rng(3);
  for (const size_t size : kSizes) {
    std::vector<float> gate = RandomRow(rng, size, 4);
    for (size_t c = 0; c < size; c += 3) gate[c] *= 1e-4f;
    for (size_t c = 1; c < size; c += 9) gate[c] *= 20;
    const std::vector<float> up = RandomRow(rng, size, 2);
    for (const Activation act : {Activation::kSilu, Activation::kGeluTanh}) {
      std::vector<double> expected(size);
      GatedActivationReference(act, gate, up, expected);
      const auto got = SameOnEveryIsa("GatedActivation", [&] {
        ShiftedRow g(gate, 1), u(up, 2), out(std::vector<float>(size), 3);
        GatedActivation(act, g.row(), u.row(), out.row());
        EXPECT_TRUE(out.GuardsIntact());
        GatedActivation(act, g.row(), up, g.row());
        GatedActivation(act, gate, u.row(), u.row());
        EXPECT_EQ(g.values(), out.values());
        EXPECT_EQ(u.values(), out.values());
        return out.values();
      });
      for (size_t c = 0; c < size; ++c) {
        ASSERT_NEAR(got[c], expected[c], 1e-6 * (1 + std::abs(expected[c]))) << gate[c];
        // Near zero the digits are kept too: act(g) is close to g / 2.
        if (std::abs(gate[c]) < 1e-2f) {
          ASSERT_NEAR(got[c] / expected[c], 1, 1e-6) << gate[c];
        }
      }
    }
  }
}

TEST_F(RowOpsTest, ActivationsAtTheEnds) {
  const std::vector<float> gate = {0.0f, -0.0f, 100, -100, 3e38f, -3e38f};
  const std::vector<float> one(gate.size(), 1.0f);
  for (const Activation act : {Activation::kSilu, Activation::kGeluTanh}) {
    const auto got = SameOnEveryIsa("GatedActivation", [&] {
      std::vector<float> out(gate.size());
      GatedActivation(act, gate, one, out);
      return out;
    });
    EXPECT_EQ(got[2], 100);
    EXPECT_NEAR(got[3], 0, 1e-30);
    EXPECT_EQ(got[4], 3e38f);
    EXPECT_NEAR(got[5], 0, 1e-30);
    EXPECT_EQ(got[0], 0.0f);
    EXPECT_EQ(got[1], 0.0f);
  }
}

TEST_F(RowOpsTest, SoftCapFollowsItsTwin) {
  Rng rng(5);
  for (const size_t size : kSizes) {
    const float cap = size % 2 == 0 ? 30.0f : 0.7f;
    std::vector<float> x = RandomRow(rng, size, cap);
    for (size_t c = 0; c < size; c += 3) x[c] *= 1e-4f;
    for (size_t c = 1; c < size; c += 7) x[c] *= 40;
    const auto got = SameOnEveryIsa("SoftCap", [&] {
      ShiftedRow row(x, 3);
      SoftCap(row.row(), cap);
      EXPECT_TRUE(row.GuardsIntact());
      return row.values();
    });
    for (size_t c = 0; c < size; ++c) {
      const double expected = SoftCapReference(x[c], cap);
      // Relative, so that small values keep their digits.
      ASSERT_NEAR(got[c], expected, 5e-7 * std::abs(expected)) << x[c] << " cap " << cap;
    }
  }
}

// The whole range of tanh in steps of a few units in the last place: within 3 ulp, and a value is
// at most two units below that of a smaller one.
TEST_F(RowOpsTest, SoftCapIsNearlyMonotone) {
  std::vector<float> x;
  for (float v = 1e-6f; v < 12.0f; v *= 1.0f + 0x1p-17f) x.push_back(v);
  for (float v = 0.62f; v < 0.63f; v = std::nextafter(v, 1.0f)) x.push_back(v);
  std::sort(x.begin(), x.end());
  const auto got = SameOnEveryIsa("SoftCap", [&] {
    std::vector<float> row = x;
    SoftCap(row, 1.0f);
    return row;
  });
  float largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::tanh(double{x[i]});
    ASSERT_NEAR(got[i], expected, 3 * 0x1p-24 * expected) << x[i];
    ASSERT_GE(got[i], largest * (1 - 2 * 0x1p-23f)) << x[i];
    largest = std::max(largest, got[i]);
  }
}

TEST_F(RowOpsTest, SoftCapAtTheEnds) {
  const auto got = SameOnEveryIsa("SoftCap", [] {
    std::vector<float> row = {0.0f, -0.0f, 1e30f, -1e30f, kInf, -kInf, 1e-30f, -3.0f};
    SoftCap(row, 30.0f);
    return row;
  });
  EXPECT_EQ(got[0], 0.0f);
  EXPECT_EQ(got[1], 0.0f);
  for (const size_t i : {2, 4}) EXPECT_EQ(got[i], 30.0f);
  for (const size_t i : {3, 5}) EXPECT_EQ(got[i], -30.0f);
  EXPECT_NEAR(got[6], 1e-30f, 1e-36);
  EXPECT_NEAR(got[7], -30 * std::tanh(0.1), 1e-6);
  std::vector<float> nan = {kNan};
  SoftCap(nan, 30.0f);
  EXPECT_TRUE(std::isnan(nan[0]));
}

TEST_F(RowOpsTest, ScaleAndAddAreExact) {
  Rng rng(4);
  for (const size_t size : kSizes) {
    const std::vector<float> x = RandomRow(rng, size), y = RandomRow(rng, size);
    SameOnEveryIsa("Scale, Add", [&] {
      ShiftedRow a(x, 3);
      Scale(a.row(), 1.7f);
      for (size_t c = 0; c < size; ++c) EXPECT_EQ(a.row()[c], x[c] * 1.7f);
      Add(a.row(), y);
      for (size_t c = 0; c < size; ++c) EXPECT_EQ(a.row()[c], x[c] * 1.7f + y[c]);
      EXPECT_TRUE(a.GuardsIntact());
      return a.values();
    });
  }
}

double Ulps(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  const float ulp = std::nextafter(rounded, kInf) - rounded;
  return std::abs(got - expected) / static_cast<double>(ulp);
}

TEST_F(RowOpsTest, ExpIsWithinTwoUlpAndTheSameEverywhere) {
  std::vector<float> x;
  for (double v = -87; v <= 88.7; v += 0.00137) x.push_back(static_cast<float>(v));
  for (int e = -40; e < 0; ++e) x.push_back(-std::ldexp(1.1f, e));
  const auto got = SameOnEveryIsa("Exp", [&] {
    std::vector<float> out(x.size());
    ActiveRowOps().exp(x.data(), out.data(), x.size());
    return out;
  });
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, Ulps(got[i], std::exp(double{x[i]})));
  EXPECT_LE(worst, 2.0);
}

TEST_F(RowOpsTest, ExpAtTheEnds) {
  const std::vector<float> x = {-kInf, -1e30f, -87.01f, 0.0f, -0.0f, 88.8f, 1e30f, kInf, kNan};
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    std::vector<float> out(x.size());
    ActiveRowOps().exp(x.data(), out.data(), x.size());
    EXPECT_THAT(std::vector<float>(out.begin(), out.end() - 1),
                ::testing::ElementsAre(0, 0, 0, 1, 1, kInf, kInf, kInf));
    EXPECT_TRUE(std::isnan(out.back())) << IsaName(isa);
  }
}

size_t SlowArgMax(const std::vector<float>& x) {
  size_t best = 0;
  const auto value = [&](size_t i) { return std::isnan(x[i]) ? -kInf : x[i]; };
  for (size_t i = 1; i < x.size(); ++i) {
    if (value(i) > value(best)) best = i;
  }
  return best;
}

// Rows that repeat values, hold NaN, infinities and both zeros.
std::vector<float> NastyRow(Rng& rng, size_t size) {
  static constexpr float kValues[] = {-kInf, kInf, kNan, -kNan, 0.0f, -0.0f, 1, -1, 2.5f};
  std::vector<float> x(size);
  const uint64_t kind = rng.Below(6);
  for (float& v : x) {
    switch (kind) {
      case 0:
        v = kValues[rng.Below(std::size(kValues))];
        break;
      case 1:
        v = kNan;
        break;
      case 2:
        v = rng.Below(2) == 0 ? -kInf : kNan;
        break;
      case 3:
        v = static_cast<float>(rng.Below(4)) - 5;
        break;
      case 4:
        v = rng.Below(2) == 0 ? 0.0f : -0.0f;
        break;
      default:
        v = rng.Normal();
    }
  }
  return x;
}

TEST_F(RowOpsTest, ArgMaxFindsTheFirstLargest) {
  for (const uint64_t seed : TestSeeds(40)) {
    Rng rng(seed);
    for (const size_t size : kSizes) {
      const std::vector<float> x = NastyRow(rng, size);
      for (const Isa isa : SupportedIsas()) {
        SetActiveIsa(isa);
        ShiftedRow row(x, seed % 4);
        ASSERT_EQ(ArgMax(row.row()), SlowArgMax(x)) << "seed " << seed << " size " << size;
      }
    }
  }
}

std::vector<uint32_t> SlowTopK(const std::vector<float>& x, uint32_t count) {
  std::vector<uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const float left = std::isnan(x[a]) ? -kInf : x[a];
    const float right = std::isnan(x[b]) ? -kInf : x[b];
    return left > right;
  });
  order.resize(std::min<size_t>(count, x.size()));
  return order;
}

void ExpectTopK(const std::vector<float>& x, uint32_t count) {
  const std::vector<uint32_t> expected = SlowTopK(x, count);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    std::vector<uint32_t> scratch(x.size(), 0xDEADBEEF), out(expected.size());
    ASSERT_EQ(TopK(x, count, scratch, out), expected.size());
    ASSERT_EQ(out, expected) << "size " << x.size() << " count " << count << IsaName(isa);
  }
}

TEST_F(RowOpsTest, TopKIsAStableSortCutOff) {
  for (const uint64_t seed : TestSeeds(8)) {
    Rng rng(seed);
    for (const size_t size : kSizes) {
      const std::vector<float> x = NastyRow(rng, size);
      for (const uint32_t count : {0, 1, 2, 5, 40, 3000}) ExpectTopK(x, count);
    }
  }
}

TEST_F(RowOpsTest, TopKOfLongRows) {
  Rng rng(5);
  const size_t size = 50000 + 7;
  std::vector<float> x = RandomRow(rng, size);
  for (const uint32_t count : {1, 40, 800, 4000}) ExpectTopK(x, count);
  std::sort(x.begin(), x.end());
  ExpectTopK(x, 40);
  std::reverse(x.begin(), x.end());
  ExpectTopK(x, 40);
  std::fill(x.begin(), x.end(), -2.0f);
  ExpectTopK(x, 40);
  std::fill(x.begin(), x.end(), -kInf);
  x[30000] = kNan;
  x[49999] = -3e38f;
  ExpectTopK(x, 40);
}

TEST_F(RowOpsTest, LogSumExpFollowsDouble) {
  Rng rng(6);
  std::vector<size_t> sizes = kSizes;
  sizes.push_back(200003);
  for (const size_t size : sizes) {
    std::vector<float> x = RandomRow(rng, size, 5);
    if (size > 2) x[size / 2] = -kInf;
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float v : x) sum += std::exp(v - max);
    const auto got = SameOnEveryIsa("LogSumExp", [&] {
      ShiftedRow row(x, 1);
      return std::vector<float>{LogSumExp(row.row())};
    });
    EXPECT_NEAR(got[0], max + std::log(sum), 1e-5) << size;
  }
  const std::vector<float> flat(262144, 0.1f);  // Every rounding error goes the same way.
  EXPECT_NEAR(LogSumExp(flat), 0.1 + std::log(262144.0), 1e-5);
}

TEST_F(RowOpsTest, LogSumExpAtTheEnds) {
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    EXPECT_EQ(LogSumExp(std::vector<float>(20, -kInf)), -kInf);
    EXPECT_EQ(LogSumExp(std::vector<float>{1, kInf, 2}), kInf);
    EXPECT_EQ(LogSumExp(std::vector<float>{-3.5f}), -3.5f);
    EXPECT_FLOAT_EQ(LogSumExp(std::vector<float>{300, -kInf, 300}), 300 + std::log(2.0f));
    EXPECT_TRUE(std::isnan(LogSumExp(std::vector<float>{1, kNan, 2})));
  }
}

// The definition by search in double: the nearest half, ties to the even one.
uint16_t SlowHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  const auto as_double = [](int bits) {
    const int exponent = bits >> 10;
    return exponent == 0 ? std::ldexp(bits, -24) : std::ldexp((bits & 0x3FF) + 1024, exponent - 25);
  };
  int low = 0;
  int high = 0x7C00;  // Here 65536, the value infinity has for rounding.
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (as_double(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - as_double(low);
  const double above = as_double(high) - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

TEST_F(RowOpsTest, HalfFromFloatRoundsToNearestEven) {
  std::vector<float> x = {0.0f, -0.0f, 1, 65504, 65519.99f, 65520, -65520, 1e30f, kInf, -kInf};
  Rng rng(7);
  for (int i = 0; i < 20000; ++i) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    if (!std::isnan(v)) x.push_back(v);
    x.push_back(std::ldexp(rng.Normal(), static_cast<int>(rng.Between(-30, 17))));
  }
  // Every half, its neighbours, and the ties between halves.
  for (int h = 0; h < 0x7C00; ++h) {
    const float v = FloatFromHalf(static_cast<uint16_t>(h));
    const float next = h == 0x7BFF ? 65536.0f : FloatFromHalf(static_cast<uint16_t>(h + 1));
    const float tie = static_cast<float>((static_cast<double>(v) + next) / 2);
    for (const float w : {v, tie}) {
      x.insert(x.end(), {w, -w, std::nextafter(w, kInf), std::nextafter(w, -kInf)});
    }
  }
  std::vector<uint16_t> expected(x.size());
  std::transform(x.begin(), x.end(), expected.begin(), SlowHalf);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(HalfFromFloat(x[i]), expected[i]) << x[i];
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    std::vector<uint16_t> got(x.size());
    ActiveRowOps().half_from_float(x.data(), got.data(), x.size());
    EXPECT_EQ(got, expected) << IsaName(isa);
  }
}

TEST_F(RowOpsTest, EveryHalfSurvivesTheTripThroughFloat) {
  std::vector<uint16_t> all(65536);
  std::iota(all.begin(), all.end(), uint16_t{0});
  const auto floats = SameOnEveryIsa("float_from_half", [&] {
    std::vector<float> out(all.size());
    ActiveRowOps().float_from_half(all.data(), out.data(), all.size());
    return out;
  });
  for (size_t h = 0; h < all.size(); ++h) {
    const float one = FloatFromHalf(all[h]);
    ASSERT_EQ(std::bit_cast<uint32_t>(one), std::bit_cast<uint32_t>(floats[h])) << h;
    const bool nan = std::isnan(one);
    const uint16_t back = nan ? all[h] | 0x200 : all[h];  // A signalling NaN becomes quiet.
    ASSERT_EQ(HalfFromFloat(one), back) << h;
  }
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    std::vector<uint16_t> back(all.size());
    ActiveRowOps().half_from_float(floats.data(), back.data(), back.size());
    for (size_t h = 0; h < all.size(); ++h) ASSERT_EQ(back[h], HalfFromFloat(floats[h])) << h;
  }
}

}  // namespace
}  // namespace kvasir
