#include "engine/cost_model.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir {
namespace {
// Below this many rows a step is bound by reading the weights.
constexpr uint32_t kInformativeRows = 16;
// Weight of the newest step. A step that took longer than predicted was a gap that somebody saw, so
// the next ones believe it at once; a faster one is believed in about ten steps.
constexpr double kSlower = 0.6;
constexpr double kFaster = 0.2;
// The depth cost wants steps in which the matrices work, not memory, and many of them: one in a
// hundred is forgotten each time. The options' ratio counts as much as this share of what was seen.
constexpr uint32_t kPromptRows = 64;
constexpr double kKept = 0.99;
constexpr double kPrior = 0.001;
constexpr double kMostOff = 8.0;
}  // namespace

CostModel::CostModel(const Options& options)
    : options_(options), macs_per_us_(options.initial_macs_per_us) {
  KV_CHECK_GT(options.linear_macs, 0.0);
  KV_CHECK_GT(options.initial_macs_per_us, 0.0);
}

double CostModel::RowsCost(uint32_t rows, uint32_t depth) const {
  const double n = rows;
  // Rows see depth, depth + 1, ..., depth + rows - 1 tokens before them.
  return n * options_.linear_macs + options_.attention_macs * (n * depth + n * (n - 1) / 2);
}

uint32_t CostModel::RowsWithin(double budget_us, uint32_t depth, uint32_t limit) const {
  const double budget = budget_us * macs_per_us_;
  uint32_t low = 0, high = limit;  // RowsCost grows with the rows: bisect.
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (RowsCost(middle, depth) <= budget) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

void CostModel::Observe(double cost, uint32_t rows, TimeUs elapsed_us) {
  if (rows < kInformativeRows || elapsed_us <= 0) return;
  const double rate = cost / static_cast<double>(elapsed_us);
  // One absurd measurement (a suspended machine) must not stall prefill for long.
  const double bounded = std::clamp(rate, macs_per_us_ / 4, macs_per_us_ * 4);
  macs_per_us_ += (bounded < macs_per_us_ ? kSlower : kFaster) * (bounded - macs_per_us_);
}

void CostModel::ObservePrompts(double cost, uint32_t rows, TimeUs elapsed_us) {
  if (rows < kPromptRows || elapsed_us <= 0 || options_.attention_macs <= 0.0) return;
  const double r = rows;
  const double p = std::max(0.0, (cost - r * options_.linear_macs) / options_.attention_macs);
  const double t = static_cast<double>(elapsed_us);
  rr_ = kKept * rr_ + r * r;
  rp_ = kKept * rp_ + r * p;
  pp_ = kKept * pp_ + p * p;
  rt_ = kKept * rt_ + r * t;
  pt_ = kKept * pt_ + p * t;
}

double CostModel::depth_cost() const {
  const double assumed = options_.attention_macs / options_.linear_macs;
  if (pp_ <= 0.0) return assumed;
  // Least squares with a ridge that pulls b towards assumed * a: steps that are all alike cannot
  // tell the two apart.
  const double ridge = kPrior * pp_;
  const double aa = rr_ + ridge * assumed * assumed;
  const double ab = rp_ - ridge * assumed;
  const double bb = pp_ + ridge;
  const double det = aa * bb - ab * ab;
  if (det <= 0.0) return assumed;
  const double a = (rt_ * bb - pt_ * ab) / det;
  const double b = (pt_ * aa - rt_ * ab) / det;
  if (a <= 0.0) return assumed * kMostOff;
  return std::clamp(b / a, assumed / kMostOff, assumed * kMostOff);
}

}  // namespace kvasir
