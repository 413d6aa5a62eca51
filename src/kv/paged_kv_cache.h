// PagedKvCache: KV in blocks anywhere in the arena, found through a prefix tree.
//
// Combines a BlockArena and a BlockPool per group, a BlockTable per sequence and group, and one
// PrefixTree. Full blocks are published to the tree at Commit and are immutable from then on; equal
// content is kept once.
//
// Rules beside those of KvCache:
//  - Reserve copies a shared partial block first (copy-on-write): after Fork, or after a hit that
//    ends inside a cached block. A leaf that is used by the sequence alone, and as a whole, it
//    takes out of the tree instead; the sequence's own block is found there again when it is full
//    or closed.
//  - A block is evicted only while the tree is its sole owner: in a window group any block, the
//    least recently used first; in group 0 leaves, as the EvictionPolicy chooses (a node takes its
//    window blocks with it).
//  - A pin owns the blocks of its path as a sequence would.
//  - A hit of n tokens needs the group 0 blocks of [0, n) and the window blocks of the last
//    window - 1 tokens before n; Open finds the largest such n.
// Source: Kwon et al. 2023 (PagedAttention); Zheng et al. 2024 (SGLang, arXiv:2312.07104), section
// 3 (the tree).
#ifndef KVASIR_KV_PAGED_KV_CACHE_H_
#define KVASIR_KV_PAGED_KV_CACHE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv/block_arena.h"
#include "kv/block_pool.h"
#include "kv/kv_cache.h"
#include "kv/prefix_tree.h"

namespace kvasir {

class PagedKvCache final : public KvCache {
 public:
  // As KvCache::Create, which has looked at the limits. REQUIRES: a valid layout.
  static StatusOr<std::unique_ptr<KvCache>> Create(const Options& options);
  ~PagedKvCache() override;

  std::optional<SequenceId> Open(const BlockHash& root, std::span<const TokenId> prompt,
                                 uint32_t most_tokens) override;
  uint32_t MatchTokens(const BlockHash& root, std::span<const TokenId> tokens) const override;
  std::optional<KvDivergence> DivergedAt(const BlockHash& root,
                                         std::span<const TokenId> tokens) const override;
  uint32_t Continuation(SequenceId id, std::span<const TokenId> next,
                        std::span<TokenId> out) const override;
  bool Reserve(SequenceId id, uint32_t token_count) override;
  void Commit(SequenceId id, std::span<const TokenId> tokens) override;
  void Truncate(SequenceId id, uint32_t token_count) override;
  uint32_t truncate_floor(SequenceId id) const override;
  std::optional<SequenceId> Fork(SequenceId id) override;
  // Full blocks are in the tree already; the partial block goes there too, as a leaf that a longer
  // prompt may start from.
  void Close(SequenceId id) override;
  uint32_t EvictAll() override;

  void AdvanceTo(TimeUs now) override;
  KvPage ListCached(const BlockHash& root, KvCursor from,
                    std::span<KvCachedEntry> out) const override;
  uint32_t CachedTokens(const BlockHash& root, const BlockHash& hash,
                        std::span<TokenId> out) const override;
  KvPin PinCached(const BlockHash& root, std::span<const TokenId> tokens,
                  KvPinTerms terms) override;
  KvPin PinCached(const BlockHash& root, const BlockHash& hash, KvPinTerms terms) override;
  bool UnpinCached(const BlockHash& root, const BlockHash& hash) override;
  KvCleared ClearCached(const BlockHash& root, KvCursor from, uint32_t most) override;
  void SetDepthCost(double depth_cost) override;
  KvEviction eviction() const override;

  uint32_t computed(SequenceId id) const override;
  uint32_t reserved(SequenceId id) const override;
  const BlockTable& table(SequenceId id, uint32_t group) const override;
  bool FitsTogether(std::span<const KvDemand> demands, uint32_t step_tokens) const override;
  uint32_t most_tokens_alone() const override;
  bool shares_running() const override { return true; }
  uint32_t open_sequences() const override;
  uint32_t block_count(uint32_t group) const override { return groups_[group]->pool.block_count(); }
  uint32_t free_blocks(uint32_t group) const override { return groups_[group]->pool.free_count(); }
  uint32_t idle_blocks(uint32_t group) const override { return tree_->idle_count(group); }
  KvUsage usage() const override;
  const KvCounters& counters() const override { return counters_; }
  void CheckInvariants() const override;

 private:
  uint32_t id_limit() const override { return static_cast<uint32_t>(sequences_.size()); }
  struct Group {
    BlockArena arena;
    BlockPool pool;
    uint32_t window = 0;
  };
  struct Sequence;  // kv_cache_sequence.h
  struct Demand;
  // A prefix that is kept: `tokens` of the path that ends at `node`.
  struct Pin {
    NodeId node = kNoNode;
    uint32_t tokens = 0;
    TimeUs until = 0;
    uint32_t owner = 0;
  };
  // What the pins of one owner keep.
  struct PinShare {
    uint32_t owner = 0;
    uint32_t pins = 0;
    std::array<uint32_t, kMaxKvGroups> blocks{};
  };

  PagedKvCache(const Options& options, std::vector<std::unique_ptr<Group>> groups,
               std::unique_ptr<PrefixTree> tree);

  Sequence& At(SequenceId id);
  const Sequence& At(SequenceId id) const;
  std::optional<SequenceId> TakeSlot();
  // Index of the block after the published ones.
  uint32_t TailBlock(const Sequence& sequence) const;
  // What a Reserve could get now.
  uint32_t available_blocks(uint32_t group) const {
    return free_blocks(group) + idle_blocks(group);
  }
  uint32_t TruncateFloor(const Sequence& sequence) const;
  uint32_t FirstNeeded(uint32_t group, uint32_t position) const;

  uint32_t FindPrefix(const BlockHash& root, std::span<const TokenId> tokens, uint32_t limit) const;
  uint32_t LimitByWindows(uint32_t token_count) const;
  std::optional<NodeId> FullChild(NodeId node, std::span<const TokenId> block) const;
  std::span<const TokenId> FollowFullBlocks(std::span<const TokenId> tokens, NodeId* node) const;
  uint32_t LimitByWindow(uint32_t group, uint32_t token_count) const;
  void PublishFull(Sequence& sequence);
  void PublishPartial(Sequence& sequence);
  void ReportRequest(const Sequence& sequence);
  NodeId InsertTail(const Sequence& sequence, uint32_t index, const BlockHash& name);
  void EraseSuperseded(NodeId parent, std::span<const TokenId> tokens);
  void ShareBlock(Sequence& sequence, uint32_t group, uint32_t index, NodeId node);

  bool NeedsCopy(const Sequence& sequence, uint32_t group) const;
  bool TakesLeafOver(const Sequence& sequence) const;
  bool PlanDemand(const Sequence& sequence, uint32_t token_count, uint32_t group,
                  Demand* demand) const;
  bool PlanDemands(const Sequence& sequence, uint32_t token_count, std::span<Demand> demands) const;
  bool FitsAlone(const Sequence& sequence, uint32_t token_count) const;
  void CopyShared(Sequence& sequence, uint32_t group, uint32_t index);
  void DropBeforeWindow(Sequence& sequence);
  void EvictUntilFree(uint32_t group, uint32_t block_count);
  void TakeFromTree(uint32_t group, NodeId node);
  void EraseNode(NodeId node);
  void PinBlock(uint32_t group, BlockId id);
  void UnpinBlock(uint32_t group, BlockId id);
  double EmptySlots(const Sequence& sequence, uint32_t group) const;
  void CheckSequence(const Sequence& sequence) const;

  KvPin PinPath(uint32_t token_count, KvPinTerms terms);
  PinShare& ShareOf(uint32_t owner);
  void Unpin(size_t index);
  bool BreakPin();
  void CountPins(uint32_t group, std::span<uint32_t> counts) const;

  const KvEvict evict_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unique_ptr<PrefixTree> tree_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // [max_sequences]
  std::vector<uint32_t> free_slots_;
  mutable std::vector<NodeId> path_;  // Nodes of the prefix found by FindPrefix.
  std::vector<PolicyBlock> request_;  // Scratch of ReportRequest.
  uint64_t clock_ = 0;                // Counts uses; the order of eviction.
  TimeUs now_ = 0;
  std::vector<Pin> pins_;                               // At most kMostPins.
  std::vector<PinShare> pin_shares_;                    // Of owners that have pins.
  TimeUs next_expiry_ = kNever;                         // Not later than any pin's.
  std::vector<std::vector<uint16_t>> pins_of_;          // [group][block] pins that own it.
  std::array<uint32_t, kMaxKvGroups> pinned_blocks_{};  // With pins_of_ > 0.
  std::array<uint64_t, kFixedKvEvicts> evictions_{};
  KvCounters counters_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_PAGED_KV_CACHE_H_
