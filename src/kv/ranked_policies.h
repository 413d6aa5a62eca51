// The policies that rank blocks by one number, set when the last user lets go: least recently used,
// least often used, and greedy dual size frequency.
//
// gdsf: rank = L + frequency * cost / size. Size is 1: whatever a block holds, it takes a block. L
// is the rank of what would have been evicted last, so that old frequencies fade: a block must be
// used again before L has grown past its rank.
// Source: Cherkasova 1998, HPL-98-69R1 (GDSF).
#ifndef KVASIR_KV_RANKED_POLICIES_H_
#define KVASIR_KV_RANKED_POLICIES_H_

#include <cstdint>
#include <vector>

#include "kv/eviction_heap.h"
#include "kv/eviction_policy.h"

namespace kvasir {

// Ties in rank go to the one at rest longest.
class RankedPolicy : public EvictionPolicy {
 public:
  explicit RankedPolicy(uint32_t item_count);

  void Add(uint32_t item, const PolicyBlock& block) override;
  void Use(uint32_t item) override;
  void Rest(uint32_t item, uint64_t stamp) override;
  void Offer(uint32_t item) override;
  void Withdraw(uint32_t item) override { heap_.Remove(item); }
  bool offered(uint32_t item) const override { return heap_.Contains(item); }
  std::optional<uint32_t> Victim() override;
  void Evict(uint32_t) override {}
  void Remove(uint32_t) override {}
  void CheckInvariants() const override { heap_.CheckInvariants(); }

  const EvictionHeap& heap() const { return heap_; }

 protected:
  // What Rest sets.
  virtual uint64_t Rank(uint32_t item) const = 0;
  uint32_t frequency(uint32_t item) const { return entries_[item].frequency; }

 private:
  struct Entry {
    uint64_t rank = 0;
    uint64_t stamp = 0;
    uint32_t frequency = 0;
  };
  std::vector<Entry> entries_;  // [item_count]
  EvictionHeap heap_;           // Those on offer.
};

class LruPolicy final : public RankedPolicy {
 public:
  using RankedPolicy::RankedPolicy;

 private:
  uint64_t Rank(uint32_t) const override { return 0; }
};

class LfuPolicy final : public RankedPolicy {
 public:
  using RankedPolicy::RankedPolicy;

 private:
  uint64_t Rank(uint32_t item) const override { return frequency(item); }
};

class GdsfPolicy final : public RankedPolicy {
 public:
  GdsfPolicy(uint32_t item_count, double depth_cost);

  void Add(uint32_t item, const PolicyBlock& block) override;
  void Evict(uint32_t item) override;
  void SetDepthCost(double depth_cost) override { depth_cost_ = depth_cost; }

 private:
  struct Size {
    uint32_t depth = 0;
    uint32_t tokens = 0;
  };
  uint64_t Rank(uint32_t item) const override;

  double depth_cost_;
  uint64_t floor_ = 0;       // L, as the heap orders it.
  std::vector<Size> sizes_;  // [item_count]
};

}  // namespace kvasir

#endif  // KVASIR_KV_RANKED_POLICIES_H_
