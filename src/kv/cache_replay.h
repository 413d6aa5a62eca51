// CacheReplay: a trace of requests through a real PrefixTree and a real EvictionPolicy, without KV
// bytes: what share of the blocks, and of their compute, a cache of some size would have saved.
//
// Requests run one at a time, in order. A request's hits are the blocks of its path that are there,
// contiguous from the start; then the rest of its path is put there, and leaves that it does not
// use make room. A block is one token to the tree.
// Thread: any one. Belongs to nobody's step: it allocates.
#ifndef KVASIR_KV_CACHE_REPLAY_H_
#define KVASIR_KV_CACHE_REPLAY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/block_hash.h"
#include "kv/eviction_policy.h"
#include "kv/prefix_tree.h"

namespace kvasir {

// Requests as paths of blocks. A block is an id after the blocks before it: the same id after
// others is another block.
class RequestTrace {
 public:
  void Add(std::span<const TokenId> ids);

  size_t request_count() const { return ends_.size(); }
  size_t reference_count() const { return blocks_.size(); }
  uint32_t block_count() const { return static_cast<uint32_t>(ids_.size()); }  // Different ones.
  uint32_t longest() const { return longest_; }  // Blocks of the longest request.
  std::span<const uint32_t> request(size_t index) const;
  size_t begin(size_t index) const { return index == 0 ? 0 : ends_[index - 1]; }
  TokenId id(uint32_t block) const { return ids_[block]; }
  const BlockHash& hash(uint32_t block) const { return hashes_[block]; }

 private:
  std::unordered_map<uint64_t, uint32_t> known_;  // (block before it + 1, id) -> block
  std::vector<TokenId> ids_;                      // [block]
  std::vector<BlockHash> hashes_;                 // [block]
  std::vector<uint32_t> blocks_;                  // Of all requests, in order.
  std::vector<size_t> ends_;                      // [request] in blocks_.
  uint32_t longest_ = 0;
};

struct ReplayOptions {
  uint64_t capacity = 0;         // Blocks; more than the trace has is as good as endless.
  std::optional<KvEvict> evict;  // nullopt: the leaf that is wanted again last (Belady).
  double depth_cost = 1.0 / 48;  // A block costs 1 + depth * depth_cost; depth in blocks.
};

struct ReplayResult {
  uint64_t references = 0;
  uint64_t hits = 0;
  double cost = 0.0;   // Of all references,
  double saved = 0.0;  // and of the hits.
  KvEviction eviction;
  double hit_rate() const {
    return references == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(references);
  }
  double compute_saved() const { return cost == 0.0 ? 0.0 : saved / cost; }
};

class CacheReplay {
 public:
  // `trace` must outlive it. REQUIRES: capacity > 0, a trace with blocks.
  CacheReplay(const RequestTrace& trace, const ReplayOptions& options);
  ~CacheReplay();

  bool done() const { return next_ == trace_.request_count(); }
  double progress() const;
  void Step();  // One request. REQUIRES: !done().
  ReplayResult result() const;
  const PrefixTree& tree() const { return tree_; }

 private:
  class ForesightPolicy;
  std::optional<BlockId> TakeBlock();
  double Cost(size_t depth) const;

  const RequestTrace& trace_;
  ReplayOptions options_;
  uint32_t capacity_;
  ForesightPolicy* foresight_ = nullptr;  // The tree's, for Belady.
  PrefixTree tree_;
  NodeId root_;
  std::vector<BlockId> free_;
  std::vector<NodeId> path_;         // Scratch of Step.
  std::vector<PolicyBlock> wanted_;  // Scratch of Step.
  std::vector<uint64_t> next_use_;   // [reference] of the same block; for Belady.
  size_t next_ = 0;
  uint64_t stamp_ = 0;
  ReplayResult result_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_CACHE_REPLAY_H_
