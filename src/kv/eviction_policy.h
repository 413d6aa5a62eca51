// EvictionPolicy: which of the evictable blocks of a prefix tree goes next.
//
// It knows blocks as items 0..item_count-1 and is told their lives: added, used again, at rest
// (nobody uses it any more), on offer (at rest and a leaf: may be chosen), withdrawn, removed. It
// owns nothing and evicts nothing. What it learnt of an item (frequency, queue) stays with it as
// long as the item lives, whether busy, at rest or an inner node meanwhile.
//
// Cost:   O(log items) a call, amortised; Requested O(path) for adaptive. No allocation after
//         construction.
// Thread: engine loop only.
#ifndef KVASIR_KV_EVICTION_POLICY_H_
#define KVASIR_KV_EVICTION_POLICY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kv/kv_evict.h"

namespace kvasir {

// A block as policies see it.
struct PolicyBlock {
  uint64_t name = 0;    // The first bits of its hash.
  uint32_t depth = 0;   // Tokens before it.
  uint32_t tokens = 0;  // Its own.
};

// What computing `block` takes, in units of one token at depth 0. Attention grows with the depth:
// a token at depth d costs 1 + d * depth_cost.
double ComputeCost(const PolicyBlock& block, double depth_cost);

struct EvictionOptions {
  KvEvict evict = KvEvict::kLru;
  uint32_t item_count = 0;
  uint32_t max_path = 0;  // Blocks of the longest request, for kAdaptive.
  // Of a token's cost for each token before it. By default that of a model whose attention costs as
  // much as its matrices at 24,576 tokens; SetDepthCost when it is known better.
  double depth_cost = 1.0 / 24576;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // A new block, in use. REQUIRES: the item is not there.
  virtual void Add(uint32_t item, const PolicyBlock& block) = 0;
  // One more request uses it.
  virtual void Use(uint32_t item) = 0;
  // The last user let go; `stamp` grows from call to call.
  virtual void Rest(uint32_t item, uint64_t stamp) = 0;
  // It may be chosen from now on, until Withdraw. REQUIRES: at rest, and not on offer.
  virtual void Offer(uint32_t item) = 0;
  virtual void Withdraw(uint32_t item) = 0;  // REQUIRES: on offer.
  virtual bool offered(uint32_t item) const = 0;

  // The item on offer that should go next; nullopt when none is on offer. The same one until
  // something else is called.
  virtual std::optional<uint32_t> Victim() = 0;
  // The item is being evicted: Withdraw and Remove follow. Others are removed without this.
  virtual void Evict(uint32_t item) = 0;  // REQUIRES: on offer.
  virtual void Remove(uint32_t item) = 0;

  // A request wanted this path of blocks from the root; of the first `asked` it would have liked to
  // find all. Only worth calling when wants_requests().
  virtual void Requested(std::span<const PolicyBlock> path, uint32_t asked);
  virtual bool wants_requests() const { return false; }

  virtual void SetDepthCost(double depth_cost);
  // Everything of KvEviction that a policy knows; evictions are whose rule they fell under.
  virtual void Report(KvEviction* report) const;

  virtual void CheckInvariants() const = 0;  // O(items).
};

std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(const EvictionOptions& options);

}  // namespace kvasir

#endif  // KVASIR_KV_EVICTION_POLICY_H_
