#include "model/head_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/logits_row.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Bounds of a claim's panels stay in L1 until its largest is found: 64 * 16 floats a row.
constexpr uint32_t kGrain = 64;

// Four maxima, so that the compiler may use vectors: this passes over all bounds.
bool AnyAbove(std::span<const float> x, float limit) {
  float most[4] = {limit, limit, limit, limit};
  size_t i = 0;
  for (; i + 4 <= x.size(); i += 4) {
    const float* at = x.data() + i;
    for (size_t j = 0; j < 4; ++j) most[j] = most[j] < at[j] ? at[j] : most[j];
  }
  for (; i < x.size(); ++i) most[0] = most[0] < x[i] ? x[i] : most[0];
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3])) > limit;
}

}  // namespace

StatusOr<HeadScan> HeadScan::Create(const PackedMatrix& head, const HeadSketch& sketch,
                                    WorkerTeam& team, float logit_cap) {
  HeadScan scan(head, sketch, team, logit_cap);
  KV_ASSIGN_OR_RETURN(scan.prepared_, HugeBuffer::Allocate(sketch.PreparedBytes(kMaxRows)));
  return scan;
}

HeadScan::HeadScan(const PackedMatrix& head, const HeadSketch& sketch, WorkerTeam& team,
                   float logit_cap)
    : head_(&head), sketch_(&sketch), team_(&team), logit_cap_(logit_cap) {
  best_.resize(size_t{kMaxRows} * static_cast<size_t>(team.worker_count()));
  below_.resize(kMaxRows);
  proven_.resize(kMaxRows);
}

void HeadScan::PrepareRow(const Activations& input, uint32_t row) {
  const std::span<const float> h(input.values + size_t{row} * input.cols, input.cols);
  proven_[row] = sketch_->PrepareRow(h, row, input.rows, prepared_.data()) ? 1 : 0;
}

std::span<const float> HeadScan::Lanes(const float* row, uint32_t begin, uint32_t end) const {
  const uint32_t first = begin * kPanelRows;
  return {row + first, std::min(end * kPanelRows, head_->rows) - first};
}

uint64_t HeadScan::ArgMaxLogits(const Activations& input, float* logits, size_t stride,
                                int worker) {
  KV_CHECK_LE(input.rows, kMaxRows);
  team_->For(input.rows, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) PrepareRow(input, row);
  });
  uint64_t bytes = Bound(input.rows, logits, stride, worker);
  team_->For(input.rows, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) FindFloor(input, row);
  });
  team_->For(head_->panel_count(), kGrain, [&](uint32_t begin, uint32_t end) {
    bytes += Rescore(input, begin, end, logits, stride);
  });
  return bytes;
}

uint64_t HeadScan::Bound(uint32_t rows, float* logits, size_t stride, int worker) {
  Best* const best = &best_[static_cast<size_t>(worker) * kMaxRows];
  std::fill(best, best + rows, Best{-kInfinity, 0});
  uint64_t panels = 0;
  team_->For(head_->panel_count(), kGrain, [&](uint32_t begin, uint32_t end) {
    sketch_->BoundPanels(rows, prepared_.data(), begin, end, logits, stride);
    panels += end - begin;
    for (uint32_t row = 0; row < rows; ++row) {
      const std::span<const float> bounds = Lanes(logits + row * stride, begin, end);
      const uint32_t index = ArgMax(bounds);
      if (bounds[index] > best[row].bound) {
        best[row] = {bounds[index], begin * kPanelRows + index};
      }
    }
  });
  return panels * sketch_->panel_bytes();
}

// Values up to this are below `largest` in the end, capped or not. SoftCap is near the true
// function to a few units in the last place and not quite monotone, hence the margin.
float HeadScan::LargestLoser(float largest) const {
  if (logit_cap_ == 0.0f) return std::nextafter(largest, -kInfinity);
  constexpr double kMargin = 0x1p-19;
  constexpr float kLeast = 1e-30f;  // Nearer to zero everything may round to it.
  const double capped = SoftCapReference(largest, logit_cap_);
  const double below = capped * (capped > 0 ? 1 - kMargin : 1 + kMargin) / logit_cap_;
  if (below <= -1.0) return -kInfinity;
  const auto loser = static_cast<float>(logit_cap_ * std::atanh(below));
  if (std::abs(loser) < kLeast) return -kLeast;
  return std::min(std::nextafter(loser, -kInfinity), std::nextafter(largest, -kInfinity));
}

void HeadScan::FindFloor(const Activations& input, uint32_t row) {
  below_[row] = -kInfinity;
  if (proven_[row] == 0) return;
  Best top{-kInfinity, 0};
  for (size_t i = row; i < best_.size(); i += kMaxRows) {
    if (best_[i].bound > top.bound) top = best_[i];
  }
  const uint32_t panel = top.index / kPanelRows;
  float exact[kMaxRows * kPanelRows];
  // MatMulPanels addresses outputs by their number in the whole matrix.
  PackedMatrix one = *head_;
  one.rows = std::min(kPanelRows, head_->rows - panel * kPanelRows);
  one.bytes += panel * PackedPanelBytes(head_->format, head_->cols);
  MatMulPanels(one, input, 0, 1, Store::kAssign, exact, kPanelRows);
  const std::span<const float> logits(exact + row * kPanelRows, one.rows);
  const float largest = logits[ArgMax(logits)];
  if (std::isfinite(largest)) below_[row] = LargestLoser(largest);
}

uint64_t HeadScan::Rescore(const Activations& input, uint32_t begin, uint32_t end, float* logits,
                           size_t stride) const {
  const auto wanted = [&](uint32_t panel) {
    for (uint32_t row = 0; row < input.rows; ++row) {
      if (below_[row] == -kInfinity) return true;
      if (AnyAbove(Lanes(logits + row * stride, panel, panel + 1), below_[row])) return true;
    }
    return false;
  };
  uint32_t panels = 0;
  for (uint32_t from = begin; from < end; ++from) {
    if (!wanted(from)) continue;
    uint32_t to = from + 1;
    while (to < end && wanted(to)) ++to;
    MatMulPanels(*head_, input, from, to, Store::kAssign, logits, stride);
    panels += to - from;
    from = to;  // Which was looked at, if it is there.
  }
  for (uint32_t row = 0; logit_cap_ != 0.0f && row < input.rows; ++row) {
    const uint32_t first = begin * kPanelRows;
    const uint32_t last = std::min(end * kPanelRows, head_->rows);
    SoftCap({logits + row * stride + first, last - first}, logit_cap_);
  }
  return panels * PackedPanelBytes(head_->format, head_->cols);
}

}  // namespace kvasir
