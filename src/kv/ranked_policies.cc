#include "kv/ranked_policies.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace kvasir {

RankedPolicy::RankedPolicy(uint32_t item_count) : entries_(item_count), heap_(item_count) {}

void RankedPolicy::Add(uint32_t item, const PolicyBlock&) {
  KV_CHECK_LT(item, entries_.size());
  KV_CHECK(!offered(item));
  entries_[item] = Entry{};
  entries_[item].frequency = 1;
}

void RankedPolicy::Use(uint32_t item) {
  KV_CHECK_LT(item, entries_.size());
  uint32_t& frequency = entries_[item].frequency;
  if (frequency < UINT32_MAX) ++frequency;
}

void RankedPolicy::Rest(uint32_t item, uint64_t stamp) {
  KV_CHECK_LT(item, entries_.size());
  KV_CHECK(!offered(item));
  entries_[item].stamp = stamp;
  entries_[item].rank = Rank(item);
}

void RankedPolicy::Offer(uint32_t item) {
  KV_CHECK_LT(item, entries_.size());
  heap_.Push(item, entries_[item].rank, entries_[item].stamp);
}

std::optional<uint32_t> RankedPolicy::Victim() {
  if (heap_.empty()) return std::nullopt;
  return heap_.Top();
}

GdsfPolicy::GdsfPolicy(uint32_t item_count, double depth_cost)
    : RankedPolicy(item_count), depth_cost_(depth_cost), sizes_(item_count) {}

void GdsfPolicy::Add(uint32_t item, const PolicyBlock& block) {
  RankedPolicy::Add(item, block);
  sizes_[item] = Size{block.depth, block.tokens};
}

// Bits of non-negative doubles are ordered as the doubles are.
uint64_t GdsfPolicy::Rank(uint32_t item) const {
  const PolicyBlock block{0, sizes_[item].depth, sizes_[item].tokens};
  const double rank =
      std::bit_cast<double>(floor_) + frequency(item) * ComputeCost(block, depth_cost_);
  return std::bit_cast<uint64_t>(rank);
}

// Where another policy rules, what that one evicts may rank high here: L rises to what this one
// would have chosen.
void GdsfPolicy::Evict(uint32_t item) {
  KV_CHECK(offered(item));
  floor_ = std::max(floor_, heap().top_priority());
}

}  // namespace kvasir
