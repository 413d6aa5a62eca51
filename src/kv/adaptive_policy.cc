#include "kv/adaptive_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace kvasir {
namespace {

constexpr uint64_t kFamilySalt = 0x7F4A7C15F39CC060u;  // Any: other bits than tables use.
// References of a window for each block of a shadow, and what the next window remembers of it. With
// shorter ones the policies take turns on the public traces and lose by it.
constexpr uint64_t kWindow = 3;
constexpr double kKept = 0.7;
constexpr uint64_t kShortestWindow = 1024;

std::unique_ptr<EvictionPolicy> MakeFixed(uint32_t index, uint32_t item_count, double depth_cost) {
  EvictionOptions options;
  options.evict = static_cast<KvEvict>(index);
  options.item_count = item_count;
  options.depth_cost = depth_cost;
  return MakeEvictionPolicy(options);
}

}  // namespace

AdaptivePolicy::AdaptivePolicy(const EvictionOptions& options)
    : depth_cost_(options.depth_cost),
      item_count_(options.item_count),
      sampling_((options.item_count + kAllSampled - 1) / kAllSampled),
      max_path_(options.max_path) {
  KV_CHECK_GT(item_count_, 0u);
  // Families differ in size: the sample may have twice its fair share before it is cut off.
  max_shadow_blocks_ = sampling_ <= 1 ? item_count_ : 2 * (item_count_ / sampling_);
  window_ = std::max<uint64_t>(kShortestWindow, kWindow * uint64_t{item_count_ / sampling_});
  for (uint32_t i = 0; i < kFixedKvEvicts; ++i) {
    policies_[i] = MakeFixed(i, item_count_, depth_cost_);
    shadows_.emplace_back(max_shadow_blocks_, max_path_,
                          MakeFixed(i, max_shadow_blocks_, depth_cost_));
  }
}

void AdaptivePolicy::Add(uint32_t item, const PolicyBlock& block) {
  for (const auto& policy : policies_) policy->Add(item, block);
}

void AdaptivePolicy::Use(uint32_t item) {
  for (const auto& policy : policies_) policy->Use(item);
}

void AdaptivePolicy::Rest(uint32_t item, uint64_t stamp) {
  for (const auto& policy : policies_) policy->Rest(item, stamp);
}

void AdaptivePolicy::Offer(uint32_t item) {
  for (const auto& policy : policies_) policy->Offer(item);
}

void AdaptivePolicy::Withdraw(uint32_t item) {
  for (const auto& policy : policies_) policy->Withdraw(item);
}

void AdaptivePolicy::Evict(uint32_t item) {
  for (const auto& policy : policies_) policy->Evict(item);
}

void AdaptivePolicy::Remove(uint32_t item) {
  for (const auto& policy : policies_) policy->Remove(item);
}

void AdaptivePolicy::SetDepthCost(double depth_cost) {
  depth_cost_ = depth_cost;
  for (const auto& policy : policies_) policy->SetDepthCost(depth_cost);
  for (ShadowCache& shadow : shadows_) shadow.SetDepthCost(depth_cost);
}

bool AdaptivePolicy::InSample(uint64_t family) const {
  return sampling_ <= 1 || Mix64(family ^ kFamilySalt) % sampling_ == 0;
}

uint32_t AdaptivePolicy::ShadowBlocks() const {
  const double share = references_ > 0.0 ? sampled_references_ / references_ : 1.0;
  const double blocks = std::round(share * item_count_);
  return static_cast<uint32_t>(std::clamp(blocks, 1.0, static_cast<double>(max_shadow_blocks_)));
}

void AdaptivePolicy::Requested(std::span<const PolicyBlock> path, uint32_t asked) {
  if (path.empty()) return;
  path = path.first(std::min<size_t>(path.size(), max_path_));
  references_ += static_cast<double>(path.size());
  if (!InSample(path[0].name)) return;
  sampled_references_ += static_cast<double>(path.size());
  in_window_ += path.size();
  asked = std::min(asked, static_cast<uint32_t>(path.size()));
  for (uint32_t i = 0; i < asked; ++i) asked_cost_ += ComputeCost(path[i], depth_cost_);
  const uint32_t capacity = ShadowBlocks();
  for (uint32_t p = 0; p < kFixedKvEvicts; ++p) {
    const uint32_t found = std::min(asked, shadows_[p].Request(path, capacity));
    for (uint32_t i = 0; i < found; ++i) saved_[p] += ComputeCost(path[i], depth_cost_);
  }
  if (in_window_ >= window_) EndWindow();
}

void AdaptivePolicy::EndWindow() {
  in_window_ = 0;
  ++report_.windows;
  KvEvict best = ruling_;
  for (uint32_t i = 0; i < kFixedKvEvicts; ++i) {
    report_.saved[i] = asked_cost_ > 0.0 ? saved_[i] / asked_cost_ : 0.0;
    if (report_.saved[i] > report_.saved[static_cast<size_t>(best)]) best = static_cast<KvEvict>(i);
  }
  const double lead =
      report_.saved[static_cast<size_t>(best)] - report_.saved[static_cast<size_t>(ruling_)];
  if (lead > kLead) {
    report_.ruled_before = std::exchange(ruling_, best);
    report_.saved_at_switch = report_.saved;
    ++report_.switches;
  }
  for (double& saved : saved_) saved *= kKept;
  asked_cost_ *= kKept;
  references_ *= kKept;
  sampled_references_ *= kKept;
}

void AdaptivePolicy::Report(KvEviction* report) const {
  const KvEvict policy = report->policy;
  const auto evictions = report->evictions;
  *report = report_;
  report->policy = policy;
  report->evictions = evictions;
  report->ruling = ruling_;
  report->shadow_blocks = ShadowBlocks();
  report->sampled_share = references_ > 0.0 ? sampled_references_ / references_ : 1.0;
}

void AdaptivePolicy::CheckInvariants() const {
  for (const auto& policy : policies_) policy->CheckInvariants();
  for (const ShadowCache& shadow : shadows_) shadow.CheckInvariants();
  for (uint32_t item = 0; item < item_count_; ++item) {
    for (const auto& policy : policies_) KV_CHECK(policy->offered(item) == offered(item));
  }
}

}  // namespace kvasir
