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

}  // namespace kvasir
