#include "kernels/row_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/isa.h"
#include "kernels/row_ops_table.h"

namespace kvasir {
namespace {

struct SineCosine {
  double sine;
  double cosine;
};

// For 0 <= angle < 2^24, absolute error about 2e-16. Plain multiplications and additions only, so
// every CPU gives the same bits.
SineCosine SineCosineOf(double angle) {
  // pi / 2 in three parts, of which the first two have so few bits that multiples of them are
  // exact.
  constexpr double kHalfPiHigh = 0x1.921FB5p+0;
  constexpr double kHalfPiMiddle = 0x4.442D1p-28;
  constexpr double kHalfPiLow = 0x8.469898CC51701p-52;
  const double quarter = std::floor(angle * 0x1.45F306DC9C883p-1 + 0.5);  // angle / (pi / 2)
  const double r =
      ((angle - quarter * kHalfPiHigh) - quarter * kHalfPiMiddle) - quarter * kHalfPiLow;
  // Taylor series on |r| <= pi / 4: the first term left out is below 1e-17.
  const double z = r * r;
  double s = 1.0 / 355687428096000.0;
  s = s * z - 1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  const double sine = r + r * z * s;
  double c = -1.0 / 6402373705728000.0;
  c = c * z + 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  const double cosine = 1.0 + z * c;
  switch (static_cast<uint32_t>(quarter) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace

namespace {

#include "kernels/half.inl"

}  // namespace

const RowOpsTable& ActiveRowOps() {
  switch (ActiveIsa()) {
    case Isa::kAvx512:
      return kRowOpsAvx512;
    case Isa::kAvx2:
      return kRowOpsAvx2;
    case Isa::kScalar:
      break;
  }
  return kRowOpsScalar;
}

void RmsNorm(std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> out) {
  KV_CHECK_GT(x.size(), 0u);
  KV_CHECK_EQ(weight.size(), x.size());
  KV_CHECK_EQ(out.size(), x.size());
  ActiveRowOps().rms_norm(x.data(), weight.data(), eps, out.data(), x.size());
}

void Rope(std::span<float> head, std::span<const float> cosine, std::span<const float> sine,
          RopePairing pairing) {
  KV_CHECK_EQ(head.size() % 2, 0u);
  KV_CHECK_EQ(cosine.size(), head.size() / 2);
  KV_CHECK_EQ(sine.size(), head.size() / 2);
  const RowOpsTable& ops = ActiveRowOps();
  const auto rotate = pairing == RopePairing::kInterleaved ? ops.rope_interleaved : ops.rope_halves;
  rotate(head.data(), cosine.data(), sine.data(), head.size() / 2);
}

void RopeFrequencies(double base, std::span<double> out) {
  KV_CHECK_GT(base, 0.0);
  const auto count = static_cast<long double>(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    // long double: x87 arithmetic, the same on every x86 CPU; rounded once.
    out[i] = static_cast<double>(
        std::pow(static_cast<long double>(base), -static_cast<long double>(i) / count));
  }
}

void RopeTable(uint32_t position, std::span<const double> frequencies, std::span<float> cosine,
               std::span<float> sine, double magnitude) {
  KV_CHECK_EQ(cosine.size(), frequencies.size());
  KV_CHECK_EQ(sine.size(), frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const SineCosine value = SineCosineOf(position * frequencies[i]);
    cosine[i] = static_cast<float>(value.cosine * magnitude);
    sine[i] = static_cast<float>(value.sine * magnitude);
  }
}

void GatedActivation(Activation activation, std::span<const float> gate, std::span<const float> up,
                     std::span<float> out) {
  KV_CHECK_EQ(gate.size(), out.size());
  KV_CHECK_EQ(up.size(), out.size());
  const RowOpsTable& ops = ActiveRowOps();
  const auto apply = activation == Activation::kSilu ? ops.silu_gate : ops.gelu_gate;
  apply(gate.data(), up.data(), out.data(), out.size());
}

void Scale(std::span<float> x, float factor) { ActiveRowOps().scale(x.data(), factor, x.size()); }

void SoftCap(std::span<float> x, float cap) {
  KV_CHECK_GT(cap, 0.0f);
  ActiveRowOps().soft_cap(x.data(), cap, x.size());
}

void Add(std::span<float> x, std::span<const float> y) {
  KV_CHECK_EQ(x.size(), y.size());
  ActiveRowOps().add(x.data(), y.data(), x.size());
}

uint16_t HalfFromFloat(float value) { return HalfOfFloat(value); }

float FloatFromHalf(uint16_t half) { return FloatOfHalf(half); }

}  // namespace kvasir
