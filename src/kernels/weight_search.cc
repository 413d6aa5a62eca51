// Least squares over grids. For given codes the best scale (and minimum) is a linear problem; for
// given scales the best codes are the nearest ones. Neither step makes the error larger, so from
// several starting grids they are taken in turn, and the best end is kept.
//
// Sums are kept in eight lanes, whose order of addition is written down: the same bytes whatever
// the compiler makes of the loops.
#include "kernels/weight_search.h"

#include <algorithm>
#include <cmath>

#include "kernels/row_ops.h"

namespace kvasir {
namespace {

constexpr int kLanes = 8;
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds.

float Sum(const float* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// A grid: value = scale * q + offset, q whole in [low, high].
struct Line {
  float scale = 0.0f;
  float offset = 0.0f;
};

// The nearest codes of N values, as whole floats. A scale of zero gives q = the code nearest 0.
template <int N>
void NearestCodes(const float* x, const Line& line, float low, float high, float* q) {
  const float inverse = line.scale == 0.0f ? 0.0f : 1.0f / line.scale;
  for (int i = 0; i < N; ++i) {
    const float at = std::min(std::max((x[i] - line.offset) * inverse, low), high);
    q[i] = (at + kRounder) - kRounder;
  }
}

template <int N>
float SquaredError(const float* x, const Line& line, const float* q) {
  float lanes[kLanes] = {};
  for (int i = 0; i < N; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float error = x[i + l] - (line.scale * q[i + l] + line.offset);
      lanes[l] += error * error;
    }
  }
  return Sum(lanes);
}

struct Moments {
  float q = 0.0f;
  float qq = 0.0f;
  float x = 0.0f;
  float qx = 0.0f;
};

template <int N>
Moments MomentsOf(const float* x, const float* q) {
  float sums[4][kLanes] = {};
  for (int i = 0; i < N; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      sums[0][l] += q[i + l];
      sums[1][l] += q[i + l] * q[i + l];
      sums[2][l] += x[i + l];
      sums[3][l] += q[i + l] * x[i + l];
    }
  }
  return {Sum(sums[0]), Sum(sums[1]), Sum(sums[2]), Sum(sums[3])};
}

// The best line through zero for these codes; and the best one whose offset is not positive.
template <int N>
Line FitScale(const float* x, const float* q) {
  const Moments m = MomentsOf<N>(x, q);
  return {m.qq == 0.0f ? 0.0f : m.qx / m.qq, 0.0f};
}

template <int N>
Line FitLine(const float* x, const float* q) {
  const Moments m = MomentsOf<N>(x, q);
  const float determinant = static_cast<float>(N) * m.qq - m.q * m.q;
  if (determinant > 0.0f) {
    const Line line = {(static_cast<float>(N) * m.qx - m.q * m.x) / determinant,
                       (m.qq * m.x - m.q * m.qx) / determinant};
    if (line.offset <= 0.0f) return line;
  }
  return {m.qq == 0.0f ? 0.0f : m.qx / m.qq, 0.0f};
}

constexpr int kRefinements = 2;

// The best grid of codes [0, max_code] for 32 values, scale >= 0, offset <= 0.
Line SearchRange(const float* x, float max_code) {
  float q[32];
  const auto [least, most] = std::minmax_element(x, x + 32);
  const float low = std::min(*least, 0.0f);
  const float width = *most - low;
  if (width <= 0.0f) return {0.0f, low};  // All are equal, and not positive.
  Line best;
  float best_error = INFINITY;
  // From grids that leave the ends out to such that reach beyond.
  for (int step = -12; step <= 6; ++step) {
    const float scale = width / (max_code - 0.25f * static_cast<float>(step));
    // A finer grid covers the range in part: about its middle.
    Line line = {scale, std::min(low + (width - scale * max_code) * 0.5f, 0.0f)};
    for (int i = 0; i <= kRefinements; ++i) {
      NearestCodes<32>(x, line, 0.0f, max_code, q);
      line = FitLine<32>(x, q);
      if (line.scale < 0.0f) break;
    }
    if (line.scale < 0.0f) continue;
    NearestCodes<32>(x, line, 0.0f, max_code, q);
    const float error = SquaredError<32>(x, line, q);
    if (error < best_error) {
      best_error = error;
      best = line;
    }
  }
  return best;
}

// The best scale, of either sign, of codes [-zero, zero) for 16 values.
float SearchScale(const float* x, float zero) {
  float q[16];
  float extreme = 0.0f;
  for (int i = 0; i < 16; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  float best = 0.0f;
  float best_error = INFINITY;
  for (int step = -12; step <= 12; ++step) {
    Line line = {-extreme / (zero + 0.1f * static_cast<float>(step)), 0.0f};
    if (line.scale == 0.0f) return 0.0f;
    for (int i = 0; i < kRefinements; ++i) {
      NearestCodes<16>(x, line, -zero, zero - 1.0f, q);
      line = FitScale<16>(x, q);
    }
    NearestCodes<16>(x, line, -zero, zero - 1.0f, q);
    const float error = SquaredError<16>(x, line, q);
    if (error < best_error) {
      best_error = error;
      best = line.scale;
    }
  }
  return best;
}

// value / unit in whole numbers within [low, high].
int Rounded(float value, float unit, int low, int high) {
  if (unit == 0.0f) return 0;
  const float ratio = std::clamp(value / unit, static_cast<float>(low), static_cast<float>(high));
  return static_cast<int>(std::lrintf(ratio));
}

// f16 bits of largest / steps, at most the largest finite f16. Among subnormal ones the next is far
// away: the larger, lest the largest scale be out of reach.
uint16_t SuperScale(float largest, float steps) {
  constexpr float kLargestHalf = 65504.0f;
  const uint16_t bits = HalfFromFloat(std::clamp(largest / steps, -kLargestHalf, kLargestHalf));
  const bool is_subnormal = (bits & 0x7C00u) == 0;
  const bool falls_short = std::fabs(FloatFromHalf(bits) * steps) < std::fabs(largest);
  return is_subnormal && falls_short ? static_cast<uint16_t>(bits + 1) : bits;
}

void Store(const float* q, int count, float zero, uint8_t* out) {
  for (int i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(q[i] + zero);
}

}  // namespace

RangeSuper SearchRanges(const float* x, int max_code, RangeGrid* grid, uint8_t* q) {
  constexpr int kMost = 63;
  const float top = static_cast<float>(max_code);
  Line lines[8];
  Line largest;
  for (int b = 0; b < 8; ++b) {
    lines[b] = SearchRange(x + 32 * b, top);
    largest.scale = std::max(largest.scale, lines[b].scale);
    largest.offset = std::max(largest.offset, -lines[b].offset);
  }
  const RangeSuper super = {SuperScale(largest.scale, kMost), SuperScale(largest.offset, kMost)};
  const float d = FloatFromHalf(super.d);
  const float m = FloatFromHalf(super.m);
  for (int b = 0; b < 8; ++b) {
    // Rounded scales are a grid of their own; the nearest is not always the best.
    const int scale = Rounded(lines[b].scale, d, 0, kMost);
    const int min = Rounded(-lines[b].offset, m, 0, kMost);
    float codes[32];
    float best_error = INFINITY;
    for (int s = std::max(0, scale - 2); s <= std::min(kMost, scale + 2); ++s) {
      for (int o = std::max(0, min - 2); o <= std::min(kMost, min + 2); ++o) {
        const Line line = {d * static_cast<float>(s), -(m * static_cast<float>(o))};
        NearestCodes<32>(x + 32 * b, line, 0.0f, top, codes);
        const float error = SquaredError<32>(x + 32 * b, line, codes);
        if (error >= best_error) continue;
        best_error = error;
        grid[b] = {static_cast<uint8_t>(s), static_cast<uint8_t>(o)};
        Store(codes, 32, 0.0f, q + 32 * b);
      }
    }
  }
  return super;
}

uint16_t SearchScales(const float* x, int zero, int8_t* scales, uint8_t* q) {
  const float middle = static_cast<float>(zero);
  float wanted[16];
  float extreme = 0.0f;
  for (int b = 0; b < 16; ++b) {
    wanted[b] = SearchScale(x + 16 * b, middle);
    if (std::fabs(wanted[b]) > std::fabs(extreme)) extreme = wanted[b];
  }
  const uint16_t bits = SuperScale(extreme, -128.0f);
  const float d = FloatFromHalf(bits);
  for (int b = 0; b < 16; ++b) {
    const int scale = Rounded(wanted[b], d, -128, 127);
    float codes[16];
    float best_error = INFINITY;
    for (int s = std::max(-128, scale - 2); s <= std::min(127, scale + 2); ++s) {
      const Line line = {d * static_cast<float>(s), 0.0f};
      NearestCodes<16>(x + 16 * b, line, -middle, middle - 1.0f, codes);
      const float error = SquaredError<16>(x + 16 * b, line, codes);
      if (error >= best_error) continue;
      best_error = error;
      scales[b] = static_cast<int8_t>(s);
      Store(codes, 16, middle, q + 16 * b);
    }
  }
  return bits;
}

}  // namespace kvasir
