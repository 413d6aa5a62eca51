// ShadowCache: what a prefix cache of some capacity would hold under a policy: names only.
//
// Replays requests one at a time: counts what a request would have found, then makes room for the
// rest of its path and puts it there. Evicts leaves that the request itself does not use.
// Thread: engine loop only; no allocation after construction. O(path log blocks) a request.
#ifndef KVASIR_KV_SHADOW_CACHE_H_
#define KVASIR_KV_SHADOW_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/eviction_policy.h"
#include "kv/name_table.h"

namespace kvasir {

class ShadowCache {
 public:
  // `policy` has max_blocks items; max_path as EvictionOptions.
  ShadowCache(uint32_t max_blocks, uint32_t max_path, std::unique_ptr<EvictionPolicy> policy);

  // How many of the first blocks of `path` it had. At most `capacity` blocks stay afterwards.
  // REQUIRES: path.size() <= max_path, capacity <= max_blocks.
  uint32_t Request(std::span<const PolicyBlock> path, uint32_t capacity);

  void SetDepthCost(double depth_cost) { policy_->SetDepthCost(depth_cost); }
  uint32_t block_count() const { return table_.size(); }
  void CheckInvariants() const;

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  struct Node {
    uint64_t name = 0;
    uint32_t parent = kNone;
    uint32_t children = 0;
  };
  bool EvictOne(uint32_t tail);
  uint32_t Insert(const PolicyBlock& block, uint32_t parent);

  std::unique_ptr<EvictionPolicy> policy_;
  NameTable table_;
  std::vector<Node> nodes_;        // [max_blocks]
  std::vector<uint32_t> free_;     // Unused nodes.
  std::vector<uint32_t> on_path_;  // Nodes of the request, scratch.
  uint64_t stamp_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_SHADOW_CACHE_H_
