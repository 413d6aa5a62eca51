#include "kv/eviction_policy.h"

#include "base/check.h"
#include "kv/adaptive_policy.h"
#include "kv/ranked_policies.h"
#include "kv/s3fifo_policy.h"

namespace kvasir {
namespace {

constexpr std::string_view kNames[] = {"lru", "lfu", "gdsf", "s3fifo", "adaptive"};

}  // namespace

std::string_view KvEvictName(KvEvict evict) {
  KV_CHECK_LE(static_cast<size_t>(evict), kFixedKvEvicts);
  return kNames[static_cast<size_t>(evict)];
}

std::optional<KvEvict> KvEvictFromName(std::string_view name) {
  for (size_t i = 0; i <= kFixedKvEvicts; ++i) {
    if (kNames[i] == name) return static_cast<KvEvict>(i);
  }
  return std::nullopt;
}

double ComputeCost(const PolicyBlock& block, double depth_cost) {
  const double middle = block.depth + 0.5 * (block.tokens - 1.0);
  return block.tokens * (1.0 + middle * depth_cost);
}

void EvictionPolicy::Requested(std::span<const PolicyBlock>, uint32_t) {}

void EvictionPolicy::SetDepthCost(double) {}

void EvictionPolicy::Report(KvEviction*) const {}

std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(const EvictionOptions& options) {
  switch (options.evict) {
    case KvEvict::kLru:
      return std::make_unique<LruPolicy>(options.item_count);
    case KvEvict::kLfu:
      return std::make_unique<LfuPolicy>(options.item_count);
    case KvEvict::kGdsf:
      return std::make_unique<GdsfPolicy>(options.item_count, options.depth_cost);
    case KvEvict::kS3Fifo:
      return std::make_unique<S3FifoPolicy>(options.item_count);
    case KvEvict::kAdaptive:
      return std::make_unique<AdaptivePolicy>(options);
  }
  KV_CHECK(false);
  return nullptr;
}

}  // namespace kvasir
