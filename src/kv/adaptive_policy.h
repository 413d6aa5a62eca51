// AdaptivePolicy: rules by whichever fixed policy would save most compute on this load.
//
// Each fixed policy is kept up to date about the real blocks, so that a switch costs nothing at
// that moment; one of them rules. A shadow cache for each replays the requests of a sample of whole
// prefix families: a family is all that begins with one first block, and is in the sample or not by
// the hash of that block. The shadows' capacity is the cache's times the measured share of the
// block references that the sample has, so that their pressure is the real one. Up to kAllSampled
// blocks everything is in the sample: names cost little beside blocks, and a cache may well have
// one family only (a common system prompt), which a smaller sample would have or miss as a whole.
//
// After each window, three times as many references as a shadow has blocks, the policy that has
// saved most in the last windows takes over if it leads the ruling one by more than kLead: less is
// noise, and would switch to and fro. Thread: engine loop only; no allocation after construction.
// Source: Waldspurger et al., ATC 2017 (scaled-down simulations by hash).
#ifndef KVASIR_KV_ADAPTIVE_POLICY_H_
#define KVASIR_KV_ADAPTIVE_POLICY_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kv/eviction_policy.h"
#include "kv/shadow_cache.h"

namespace kvasir {

class AdaptivePolicy final : public EvictionPolicy {
 public:
  static constexpr double kLead = 0.01;  // Of all compute that prompts take.
  static constexpr uint32_t kAllSampled = 1u << 15;

  explicit AdaptivePolicy(const EvictionOptions& options);

  void Add(uint32_t item, const PolicyBlock& block) override;
  void Use(uint32_t item) override;
  void Rest(uint32_t item, uint64_t stamp) override;
  void Offer(uint32_t item) override;
  void Withdraw(uint32_t item) override;
  bool offered(uint32_t item) const override { return ruling().offered(item); }
  std::optional<uint32_t> Victim() override { return ruling().Victim(); }
  void Evict(uint32_t item) override;
  void Remove(uint32_t item) override;
  void Requested(std::span<const PolicyBlock> path, uint32_t asked) override;
  bool wants_requests() const override { return true; }
  void SetDepthCost(double depth_cost) override;
  void Report(KvEviction* report) const override;
  void CheckInvariants() const override;

 private:
  EvictionPolicy& ruling() { return *policies_[static_cast<size_t>(ruling_)]; }
  const EvictionPolicy& ruling() const { return *policies_[static_cast<size_t>(ruling_)]; }
  bool InSample(uint64_t family) const;
  uint32_t ShadowBlocks() const;
  void EndWindow();

  double depth_cost_;
  uint32_t item_count_;
  uint32_t sampling_;           // One family in so many.
  uint32_t max_shadow_blocks_;  // What the shadows have memory for.
  uint32_t max_path_;
  uint64_t window_;  // References of the sample between two decisions.
  KvEvict ruling_ = KvEvict::kGdsf;
  std::array<std::unique_ptr<EvictionPolicy>, kFixedKvEvicts> policies_;  // Of the real blocks.
  std::vector<ShadowCache> shadows_;                                      // By KvEvict.
  // Of the last windows, the older the less.
  std::array<double, kFixedKvEvicts> saved_{};
  double asked_cost_ = 0.0;
  double references_ = 0.0;          // Of all requests,
  double sampled_references_ = 0.0;  // and of those in the sample.
  uint64_t in_window_ = 0;           // References of the sample since the last decision.
  KvEviction report_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_ADAPTIVE_POLICY_H_
