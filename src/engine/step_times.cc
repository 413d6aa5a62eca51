#include "engine/step_times.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr double kSmoothing = 0.2;      // Weight of the newest step.
constexpr uint64_t kFresh = 256;        // Averages renewed within so many steps do not drift,
constexpr uint64_t kRenewed = 128;      // Known is what was measured within so many steps
constexpr uint32_t kEnough = 3;         // and so many times.
constexpr double kDrift = 1.0 / 512.0;  // others by this a step.
constexpr double kRowShare = 0.1;       // What another row adds to a step of one, if unknown.
constexpr double kMostSurprise = 2.0;   // A single step counts for at most so much more.

// The shape that is assumed between measured numbers of rows.
double ShapeOf(uint32_t rows) { return 1.0 + kRowShare * (rows - 1); }

}  // namespace

void StepTimes::Observe(uint32_t rows, TimeUs elapsed_us) {
  if (rows == 0 || rows > kMaxRows || elapsed_us <= 0) return;
  // A step that a neighbour disturbed must not spoil its number of rows for long.
  const double expected = measured_ ? Predict(rows) : static_cast<double>(elapsed_us);
  const double elapsed = std::clamp(static_cast<double>(elapsed_us), expected / kMostSurprise,
                                    expected * kMostSurprise);
  double& average = average_us_[rows];
  // What drifted is an estimate: the first measurement puts it right at once.
  const bool fresh = average > 0.0 && step_count_ - measured_at_[rows] < kFresh;
  average = fresh ? average + kSmoothing * (elapsed - average) : elapsed;
  measured_ = true;
  count_[rows] = std::min(count_[rows] + 1, kEnough);
  measured_at_[rows] = ++step_count_;
  for (uint32_t other = 1; other <= kMaxRows; ++other) {
    if (average_us_[other] == 0.0 || step_count_ - measured_at_[other] < kFresh) continue;
    const double assumed = average * ShapeOf(other) / ShapeOf(rows);
    average_us_[other] += kDrift * (assumed - average_us_[other]);
  }
}

bool StepTimes::Knows(uint32_t rows) const {
  if (!measured_ || rows > kMaxRows) return true;
  return count_[rows] == kEnough && step_count_ - measured_at_[rows] < kRenewed;
}

double StepTimes::Predict(uint32_t rows) const {
  KV_CHECK_GT(rows, 0u);
  if (!measured_) return ShapeOf(rows);
  const uint32_t within = std::min(rows, kMaxRows);
  uint32_t below = within, above = within;
  while (below > 0 && average_us_[below] == 0.0) --below;
  while (above <= kMaxRows && average_us_[above] == 0.0) ++above;
  const double beyond = ShapeOf(rows) / ShapeOf(within);  // 1 up to kMaxRows.
  if (below == above) return average_us_[below] * beyond;
  if (below == 0) return average_us_[above] * ShapeOf(rows) / ShapeOf(above);
  if (above > kMaxRows) {
    // Nothing larger was ever measured: believe in cheap rows up to twice as many, so that sizes
    // are tried by doubling, and take further ones for what they cost at worst.
    const uint32_t cheap = std::min(rows, 2 * below);
    return average_us_[below] * ShapeOf(cheap) / ShapeOf(below) * rows / cheap;
  }
  const double share = static_cast<double>(within - below) / (above - below);
  return average_us_[below] + share * (average_us_[above] - average_us_[below]);
}

}  // namespace kvasir
