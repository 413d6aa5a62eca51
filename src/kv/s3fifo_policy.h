// S3FifoPolicy: first in, first out, in two queues and a list of ghosts.
//
// A new block joins the small queue. At its turn there it moves to the main queue when it was used
// twice since, else it is evicted and its name becomes a ghost. A block whose ghost is still there
// joins the main queue at once. At its turn there a block that was used since goes back to the end,
// one use poorer. A scan of new prompts thus displaces the small queue only.
//
// Queues of a tree's leaves: a block keeps its place in line while it is busy or has children, and
// takes its turn when it is on offer: the first on offer is whose turn it is. So queues are heaps
// by arrival, O(log items).
// Source: Yang et al., SOSP 2023 (S3-FIFO).
#ifndef KVASIR_KV_S3FIFO_POLICY_H_
#define KVASIR_KV_S3FIFO_POLICY_H_

#include <cstdint>
#include <vector>

#include "kv/eviction_heap.h"
#include "kv/eviction_policy.h"
#include "kv/name_table.h"

namespace kvasir {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(uint32_t item_count);

  void Add(uint32_t item, const PolicyBlock& block) override;
  void Use(uint32_t item) override;
  void Rest(uint32_t, uint64_t) override {}
  void Offer(uint32_t item) override;
  void Withdraw(uint32_t item) override;
  bool offered(uint32_t item) const override {
    return small_.Contains(item) || main_.Contains(item);
  }
  // Moves blocks between and within the queues on its way: each use pays for one move.
  std::optional<uint32_t> Victim() override;
  void Evict(uint32_t item) override;
  void Remove(uint32_t item) override;
  void CheckInvariants() const override;

 private:
  struct Entry {
    uint64_t name = 0;
    uint64_t arrival = 0;
    uint8_t uses = 0;  // Since it joined this queue or its last turn; at most kMostUses.
    bool there = false;
    bool in_main = false;
  };
  static constexpr uint8_t kMostUses = 3;

  std::vector<Entry> entries_;  // [item_count]
  EvictionHeap small_;          // On offer, by arrival.
  EvictionHeap main_;
  uint32_t small_count_ = 0;  // In the small queue, on offer or not.
  uint32_t small_target_;
  uint64_t clock_ = 0;
  GhostList ghosts_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_S3FIFO_POLICY_H_
