// KvCache: the KV of all running sequences and of every prefix worth keeping, in fixed memory.
//
// Combines a BlockArena and a BlockPool per group, a BlockTable per sequence and group, and one
// PrefixTree. A sequence has `computed` tokens; a step is Reserve (make slots writable), run the
// model (kernels write through table addresses), Commit (those tokens count now). Full blocks are
// published to the tree at Commit and are immutable from then on; equal content is kept once.
//
// Rules:
//  - A block is written only while one sequence is its sole owner. Reserve copies a shared partial
//    block first (copy-on-write): after Fork, or after a hit that ends inside a cached block.
//  - A block is evicted only while the tree is its sole owner: in a window group any block, in
//    group 0 leaves first, least recently used first (a node takes its window blocks with it).
//  - A hit of n tokens needs the group 0 blocks of [0, n) and the window blocks of the last
//    window - 1 tokens before n; Open finds the largest such n.
// Addresses in a table may change at Reserve and Commit (a copy, or a twin already cached), so read
// the table after Reserve and forget it at Commit.
// Thread: engine loop only. After Create nothing allocates on the heap.
#ifndef KVASIR_KV_KV_CACHE_H_
#define KVASIR_KV_KV_CACHE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/block_arena.h"
#include "kv/block_hash.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/kv_layout.h"
#include "kv/prefix_tree.h"

namespace kvasir {

// Totals since Create.
struct KvCounters {
  uint64_t queries = 0;       // Open calls.
  uint64_t query_tokens = 0;  // Their prompt tokens.
  uint64_t hits = 0;          // Open calls that reused anything.
  uint64_t hit_tokens = 0;    // Tokens they reused.
  uint64_t committed_tokens = 0;
  uint64_t published_nodes = 0;  // Blocks of group 0 that entered the tree.
  uint64_t duplicate_nodes = 0;  // Full blocks computed though the tree had them already.
  uint64_t copies = 0;           // Blocks copied by copy-on-write, all groups.
  uint64_t failed_reserves = 0;
  std::array<uint64_t, kMaxKvGroups> evictions{};  // Blocks, by group.
};

// Where a prompt leaves a cached branch.
struct KvDivergence {
  uint32_t at = 0;                   // Index of the first token that differs.
  std::array<TokenId, 16> cached{};  // How the branch, or its newest twig, goes on there instead.
  uint32_t cached_count = 0;
};

class KvCache {
 public:
  struct Options {
    KvLayout layout;
    // Bytes of blocks of all groups together, a hard limit (bookkeeping, about 250 bytes a block,
    // comes on top). Every group gets the same number of blocks, so that a group's share is
    // proportional to its bytes per token: window blocks of a cached prefix then fit whenever its
    // group 0 blocks do. Ignored when block_counts is given.
    uint64_t memory_bytes = 0;
    std::vector<uint32_t> block_counts;  // By group.
    uint32_t max_sequences = 0;
    uint32_t max_sequence_tokens = 0;
  };

  // kInvalidArgument when the layout is wrong, a limit is 0, or the memory cannot hold one block of
  // each group; kResourceExhausted when it cannot be mapped.
  static StatusOr<std::unique_ptr<KvCache>> Create(const Options& options);
  ~KvCache();

  // Starts a sequence with the longest cached prefix of `prompt`, but at most all tokens but one:
  // the last one must be computed to know what follows. computed() says how many were reused; no
  // block is allocated. `root` names model, format and tenant (RootHash). nullopt when
  // max_sequences are open. REQUIRES: prompt.size() <= max_sequence_tokens. O(prompt).
  std::optional<SequenceId> Open(const BlockHash& root, std::span<const TokenId> prompt);

  // How many tokens Open would reuse now. Changes nothing. O(tokens).
  uint32_t MatchTokens(const BlockHash& root, std::span<const TokenId> tokens) const;

  // The first token at which `tokens` leave the cached branch that they follow longest: the branch
  // goes on, but with another token. nullopt when nothing of them is cached, when they end or go on
  // where the cached branch ends, and when the branch was evicted. Changes nothing. O(tokens).
  std::optional<KvDivergence> DivergedAt(const BlockHash& root,
                                         std::span<const TokenId> tokens) const;

  // How the newest cached branch that has the sequence's tokens and then `next` goes on; returns
  // how many tokens of it `out` got. Changes nothing.
  uint32_t Continuation(SequenceId id, std::span<const TokenId> next, std::span<TokenId> out) const;

  // Makes the slots of positions [computed, computed + token_count) writable in all groups:
  // allocates, evicts, copies a shared partial block. False when the memory cannot be had; nothing
  // changed then, except that nothing is reserved any more. REQUIRES: computed + token_count <=
  // max_sequence_tokens.
  [[nodiscard]] bool Reserve(SequenceId id, uint32_t token_count);

  // The KV of `tokens` was written to the first reserved slots. Advances computed, publishes blocks
  // that became full, lets go of blocks that left the window; ends the reservation (unused blocks
  // stay with the sequence for the next one). REQUIRES: tokens.size() <= what was reserved.
  void Commit(SequenceId id, std::span<const TokenId> tokens);

  // Forgets computed tokens from `token_count` on, and lets go of reserved blocks beyond.
  // REQUIRES: truncate_floor(id) <= token_count <= computed(id).
  void Truncate(SequenceId id, uint32_t token_count);
  // The last full block's end, or what the sequence began with if that is more.
  uint32_t truncate_floor(SequenceId id) const;

  // A second sequence with the same computed tokens, sharing every block; whoever first writes to
  // the shared partial block copies it. Ends the reservation of `id`. nullopt when max_sequences
  // are open.
  std::optional<SequenceId> Fork(SequenceId id);

  // Ends a sequence. Its full blocks are in the tree already; its partial block goes there too, as
  // a leaf that a longer prompt may start from. All of it stays until evicted.
  void Close(SequenceId id);

  // Drops everything that only the tree owns; returns the number of nodes. O(nodes log nodes).
  uint32_t EvictAll();

  uint32_t computed(SequenceId id) const;
  uint32_t reserved(SequenceId id) const;  // Writable slots after computed; 0 outside a step.
  // By position / block_tokens; addresses() is what attention reads.
  const BlockTable& table(SequenceId id, uint32_t group) const;

  const KvLayout& layout() const { return layout_; }
  uint32_t max_sequence_tokens() const { return max_sequence_tokens_; }
  uint32_t open_sequences() const;
  uint32_t block_count(uint32_t group) const { return groups_[group]->pool.block_count(); }
  uint32_t free_blocks(uint32_t group) const { return groups_[group]->pool.free_count(); }
  // Held by the tree alone: what eviction could free.
  uint32_t tree_only_blocks(uint32_t group) const { return tree_->idle_count(group); }
  // What a Reserve could get now.
  uint32_t available_blocks(uint32_t group) const;
  uint64_t arena_bytes() const;
  const KvCounters& counters() const { return counters_; }

  // Crashes on the first broken rule. O(blocks + table entries): for tests and debug builds.
  void CheckInvariants() const;

 private:
  struct Group {
    BlockArena arena;
    BlockPool pool;
    uint32_t window = 0;
  };
  struct Sequence;  // kv_cache_sequence.h
  struct Demand;

  KvCache(const Options& options, std::vector<std::unique_ptr<Group>> groups,
          std::unique_ptr<PrefixTree> tree);

  Sequence& At(SequenceId id);
  const Sequence& At(SequenceId id) const;
  std::optional<SequenceId> TakeSlot();
  uint32_t BlocksFor(uint32_t token_count) const;
  uint32_t TruncateFloor(const Sequence& sequence) const;
  uint32_t FirstNeeded(uint32_t group, uint32_t position) const;

  uint32_t FindPrefix(const BlockHash& root, std::span<const TokenId> tokens) const;
  std::span<const TokenId> FollowFullBlocks(std::span<const TokenId> tokens, NodeId* node) const;
  uint32_t LimitByWindow(uint32_t group, uint32_t token_count) const;
  void PublishFull(Sequence& sequence);
  void PublishPartial(Sequence& sequence);
  NodeId InsertTail(const Sequence& sequence, uint32_t index, const BlockHash& name);
  void EraseSuperseded(NodeId parent, std::span<const TokenId> tokens);
  void ShareBlock(Sequence& sequence, uint32_t group, uint32_t index, NodeId node);

  bool NeedsCopy(const Sequence& sequence, uint32_t group) const;
  bool PlanDemand(const Sequence& sequence, uint32_t token_count, uint32_t group,
                  Demand* demand) const;
  void CopyShared(Sequence& sequence, uint32_t group, uint32_t index);
  void DropBeforeWindow(Sequence& sequence);
  void EvictUntilFree(uint32_t group, uint32_t block_count);
  void TakeFromTree(uint32_t group, NodeId node);
  void EraseNode(NodeId node);
  void PinBlock(uint32_t group, BlockId id);
  void UnpinBlock(uint32_t group, BlockId id);
  void CheckSequence(const Sequence& sequence) const;

  KvLayout layout_;
  uint32_t max_sequence_tokens_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unique_ptr<PrefixTree> tree_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // [max_sequences]
  std::vector<uint32_t> free_slots_;
  mutable std::vector<NodeId> path_;  // Nodes of the prefix found by FindPrefix.
  uint64_t clock_ = 0;                // Counts uses; the order of eviction.
  KvCounters counters_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_CACHE_H_
