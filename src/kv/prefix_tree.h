// PrefixTree: which prefixes are cached: nodes named by chained hash, each with a block per group.
//
// A root stands for one model, format and tenant and holds nothing. Every other node is a full
// block of tokens after its parent, or a partial one, which is always a leaf. Tokens are kept
// beside the hash: they show where a prompt leaves a cached branch, and a wrong name cannot go
// unnoticed. A node's group 0 block exists as long as the node; window blocks may be absent.
//
// The tree does not count owners (BlockPool does). It is told when it becomes a block's only owner
// (MarkIdle) and when not (MarkBusy), and names the next victim: of group 0, an idle node without
// children that the EvictionPolicy chooses; of a window group, the least recently used idle block
// (losing one costs only the hits within the next window of tokens).
//
// Invariant: in group 0, descendants of an idle node are idle (whoever uses a node uses its
//            ancestors), so every idle block can be freed by evicting leaves.
// Thread:    engine loop only; no allocation after construction.
// Cost:      O(1) look-up and insertion, O(log nodes) per change of idleness; about 130 bytes a
// node
//            plus its tokens, and 50 to 120 of the policy, 900 of adaptive.
#ifndef KVASIR_KV_PREFIX_TREE_H_
#define KVASIR_KV_PREFIX_TREE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "kv/block_hash.h"
#include "kv/eviction_heap.h"
#include "kv/eviction_policy.h"
#include "kv/kv_layout.h"

namespace kvasir {

enum class NodeId : uint32_t {};
inline constexpr NodeId kNoNode = NodeId{0xFFFFFFFFu};

class PrefixTree {
 public:
  struct Options {
    uint32_t block_tokens = 16;
    std::vector<uint32_t> block_counts;  // By group; [0] bounds the nodes.
    uint32_t max_root_users = 1;         // AcquireRoot calls outstanding at once.
    KvEvict evict = KvEvict::kLru;
    uint32_t max_path = 0;  // EvictionOptions::max_path
  };
  explicit PrefixTree(const Options& options);
  // With a policy of block_counts[0] items in place of options.evict.
  PrefixTree(const Options& options, std::unique_ptr<EvictionPolicy> policy);

  // The root of that name, created when new; stays at least until ReleaseRoot.
  NodeId AcquireRoot(const BlockHash& hash);
  void ReleaseRoot(NodeId root);
  std::optional<NodeId> FindRoot(const BlockHash& hash) const;

  // The child of that name. Aborts when a node of that name has another parent or other tokens.
  std::optional<NodeId> FindChild(NodeId parent, const BlockHash& hash,
                                  std::span<const TokenId> tokens) const;

  // The node of that name under `root`; not the root itself.
  std::optional<NodeId> FindNode(NodeId root, const BlockHash& hash) const;

  // The child that shares the most first tokens with `tokens`, if any shares one; ties go to the
  // newest. Looks at the newest kMaxScannedChildren children only.
  struct PartialMatch {
    NodeId node = kNoNode;
    uint32_t token_count = 0;
  };
  std::optional<PartialMatch> LongestPartialMatch(NodeId parent,
                                                  std::span<const TokenId> tokens) const;
  static constexpr uint32_t kMaxScannedChildren = 256;

  // A partial child, idle in every group, whose tokens begin `tokens`; among the newest children.
  std::optional<NodeId> FindIdlePartialPrefix(NodeId parent, std::span<const TokenId> tokens) const;

  // Adds a node, busy in every group; blocks[0] is a block, others may be kNoBlock. REQUIRES:
  // parent is a root, or full and busy; no node has that name; 0 < tokens.size() <= block_tokens.
  NodeId Insert(NodeId parent, const BlockHash& hash, std::span<const TokenId> tokens,
                std::span<const BlockId> blocks);
  // Removes a node without children, and its root when that is unused now.
  void Erase(NodeId node);
  // Says that Erase follows because its block is wanted. REQUIRES: it is what Victim(0) said.
  void NoteEviction(NodeId node) { policy_->Evict(Index(block(node, 0))); }
  // One more sequence has the node.
  void NoteUse(NodeId node);
  // Uses are stamped with this time from now on.
  void AdvanceTo(TimeUs now) { now_ = now; }

  // Gives a node that has none a window block (busy), or takes it away. REQUIRES: group > 0.
  void AttachBlock(NodeId node, uint32_t group, BlockId block);
  void DetachBlock(NodeId node, uint32_t group);

  // The tree is the only owner of the node's block from now on; `stamp` orders eviction, smaller
  // first. REQUIRES: the node has the block and is busy.
  void MarkIdle(NodeId node, uint32_t group, uint64_t stamp);
  void MarkBusy(NodeId node, uint32_t group);  // REQUIRES: idle.
  bool idle(NodeId node, uint32_t group) const { return At(node).idle[group]; }
  uint32_t idle_count(uint32_t group) const { return idle_count_[group]; }

  // The node whose block of `group` should go next; for group 0 it has no children.
  std::optional<NodeId> Victim(uint32_t group);
  EvictionPolicy& policy() { return *policy_; }
  const EvictionPolicy& policy() const { return *policy_; }

  // The node that holds this block, or kNoNode.
  NodeId owner(uint32_t group, BlockId block) const { return owner_[group][Index(block)]; }

  bool is_root(NodeId node) const { return At(node).parent == kNoNode; }
  bool is_full(NodeId node) const { return At(node).token_count == block_tokens_; }
  bool has_children(NodeId node) const { return newest_child(node) != kNoNode; }
  NodeId newest_child(NodeId node) const { return At(node).first_child; }  // kNoNode: none.
  NodeId older_sibling(NodeId node) const { return At(node).next; }        // kNoNode: none.
  NodeId parent(NodeId node) const { return At(node).parent; }
  NodeId root(NodeId node) const { return At(node).root; }
  uint32_t depth(NodeId node) const { return At(node).depth; }  // Tokens before it.
  uint32_t uses(NodeId node) const { return At(node).uses; }    // Who made it counts.
  TimeUs last_use(NodeId node) const { return At(node).last_use; }
  PolicyBlock policy_block(NodeId node) const;
  const BlockHash& hash(NodeId node) const { return At(node).hash; }
  BlockId block(NodeId node, uint32_t group) const { return At(node).blocks[group]; }
  std::span<const TokenId> tokens(NodeId node) const;
  uint32_t node_count() const { return node_count_; }  // Without roots.
  uint32_t root_count() const { return root_count_; }
  // For walking over all nodes in bounded portions: a node keeps its place as long as it lives.
  uint32_t place_count() const { return static_cast<uint32_t>(nodes_.size()); }
  std::optional<NodeId> node_at(uint32_t place) const;  // nullopt: none, or a root.
  // Slots of its blocks that hold no token: partial nodes have some.
  uint64_t empty_slots(uint32_t group) const { return empty_slots_[group]; }

  // Crashes on the first broken rule. O(nodes).
  void CheckInvariants() const;

 private:
  struct Node {
    BlockHash hash;
    NodeId parent = kNoNode;  // kNoNode: a root.
    NodeId first_child = kNoNode;
    NodeId next = kNoNode;  // Older sibling; of an unused node, the next unused one.
    NodeId previous = kNoNode;
    NodeId root = kNoNode;  // Of a root: itself.
    std::array<BlockId, kMaxKvGroups> blocks{};
    std::array<bool, kMaxKvGroups> idle{};
    bool used = false;
    uint32_t token_count = 0;  // 0: a root.
    uint32_t root_users = 0;
    uint32_t depth = 0;
    uint32_t uses = 0;
    TimeUs last_use = 0;
  };

  void CheckNode(NodeId node) const;
  Node& At(NodeId node);
  const Node& At(NodeId node) const;
  NodeId TakeNode(const BlockHash& hash);
  void ReturnNode(NodeId node);
  void EraseRootIfUnused(NodeId root);
  std::optional<NodeId> Lookup(const BlockHash& hash) const;
  uint32_t Home(const BlockHash& hash) const;
  void TableInsert(NodeId node);
  void TableErase(NodeId node);

  uint32_t block_tokens_;
  uint32_t group_count_;
  uint32_t node_count_ = 0;
  uint32_t root_count_ = 0;
  TimeUs now_ = 0;
  NodeId first_unused_ = kNoNode;  // Chain of returned nodes.
  size_t capacity_;                // Blocks, and as many roots and users' roots again.
  std::vector<Node> nodes_;        // Grows to capacity_, reserved at once: untouched costs nothing.
  std::vector<NodeId> table_;      // Open addressing by hash, a power of two, <= half full.
  std::vector<TokenId> tokens_;    // [block_counts[0]][block_tokens], by group 0 block.
  std::vector<std::vector<NodeId>> owner_;  // [group][block]
  std::unique_ptr<EvictionPolicy> policy_;  // Of group 0: items are its block ids.
  std::vector<EvictionHeap> victims_;       // [group] of block ids; [0] is unused.
  std::array<uint32_t, kMaxKvGroups> idle_count_{};
  std::array<uint64_t, kMaxKvGroups> empty_slots_{};
};

}  // namespace kvasir

#endif  // KVASIR_KV_PREFIX_TREE_H_
