#include "kv/prefix_tree.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

uint32_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t n = 0;
  while (n < limit && a[n] == b[n]) ++n;
  return static_cast<uint32_t>(n);
}

std::unique_ptr<EvictionPolicy> PolicyOf(const PrefixTree::Options& options) {
  EvictionOptions policy;
  policy.evict = options.evict;
  policy.item_count = options.block_counts.at(0);
  policy.max_path = options.max_path;
  return MakeEvictionPolicy(policy);
}

}  // namespace

PrefixTree::PrefixTree(const Options& options) : PrefixTree(options, PolicyOf(options)) {}

PrefixTree::PrefixTree(const Options& options, std::unique_ptr<EvictionPolicy> policy)
    : block_tokens_(options.block_tokens),
      group_count_(static_cast<uint32_t>(options.block_counts.size())),
      policy_(std::move(policy)) {
  KV_CHECK_GT(block_tokens_, 0u);
  KV_CHECK_GT(group_count_, 0u);
  KV_CHECK_LE(group_count_, kMaxKvGroups);
  const uint32_t blocks = options.block_counts[0];
  // Every node has a block of group 0, and every root has a node below it or a user.
  capacity_ = 2 * size_t{blocks} + options.max_root_users;
  KV_CHECK_LT(capacity_, size_t{1} << 31);
  nodes_.reserve(capacity_);
  size_t slots = 4;
  while (slots < 2 * capacity_) slots *= 2;
  table_.assign(slots, kNoNode);
  tokens_.resize(size_t{blocks} * block_tokens_);
  for (const uint32_t count : options.block_counts) {
    owner_.emplace_back(count, kNoNode);
    victims_.emplace_back(victims_.empty() ? 0 : count);
  }
}

PrefixTree::Node& PrefixTree::At(NodeId node) {
  return const_cast<Node&>(static_cast<const PrefixTree*>(this)->At(node));
}

const PrefixTree::Node& PrefixTree::At(NodeId node) const {
  KV_CHECK_LT(Index(node), nodes_.size());
  KV_CHECK(nodes_[Index(node)].used);
  return nodes_[Index(node)];
}

// Hash table: linear probing, erase by shifting back, so that no tombstones pile up and nothing is
// ever rehashed. SHA-256 bits need no further mixing.

uint32_t PrefixTree::Home(const BlockHash& hash) const {
  uint64_t bits;
  std::memcpy(&bits, hash.bytes.data(), sizeof(bits));
  return static_cast<uint32_t>(bits & (table_.size() - 1));
}

std::optional<NodeId> PrefixTree::Lookup(const BlockHash& hash) const {
  const uint32_t mask = static_cast<uint32_t>(table_.size() - 1);
  for (uint32_t slot = Home(hash); table_[slot] != kNoNode; slot = (slot + 1) & mask) {
    if (nodes_[Index(table_[slot])].hash == hash) return table_[slot];
  }
  return std::nullopt;
}

void PrefixTree::TableInsert(NodeId node) {
  const uint32_t mask = static_cast<uint32_t>(table_.size() - 1);
  uint32_t slot = Home(At(node).hash);
  while (table_[slot] != kNoNode) slot = (slot + 1) & mask;
  table_[slot] = node;
}

void PrefixTree::TableErase(NodeId node) {
  const uint32_t mask = static_cast<uint32_t>(table_.size() - 1);
  uint32_t hole = Home(At(node).hash);
  while (table_[hole] != node) {
    KV_CHECK_NE(table_[hole], kNoNode);
    hole = (hole + 1) & mask;
  }
  // An entry further on moves into the hole unless its home lies behind the hole already.
  for (uint32_t slot = (hole + 1) & mask; table_[slot] != kNoNode; slot = (slot + 1) & mask) {
    const uint32_t home = Home(nodes_[Index(table_[slot])].hash);
    if (((slot - home) & mask) >= ((slot - hole) & mask)) {
      table_[hole] = table_[slot];
      hole = slot;
    }
  }
  table_[hole] = kNoNode;
}

NodeId PrefixTree::TakeNode(const BlockHash& hash) {
  NodeId id = first_unused_;
  if (id != kNoNode) {
    first_unused_ = nodes_[Index(id)].next;
    nodes_[Index(id)] = Node{};
  } else {
    KV_CHECK_LT(nodes_.size(), capacity_);
    id = NodeId{static_cast<uint32_t>(nodes_.size())};
    nodes_.emplace_back();
  }
  Node& node = nodes_[Index(id)];
  node.used = true;
  node.hash = hash;
  node.root = id;
  node.blocks.fill(kNoBlock);
  TableInsert(id);
  return id;
}

void PrefixTree::ReturnNode(NodeId id) {
  TableErase(id);
  Node& node = At(id);
  node.used = false;
  node.next = first_unused_;
  first_unused_ = id;
}

NodeId PrefixTree::AcquireRoot(const BlockHash& hash) {
  std::optional<NodeId> root = FindRoot(hash);
  if (!root.has_value()) {
    root = TakeNode(hash);
    ++root_count_;
  }
  ++At(*root).root_users;
  return *root;
}

void PrefixTree::ReleaseRoot(NodeId root) {
  KV_CHECK(is_root(root));
  KV_CHECK_GT(At(root).root_users, 0u);
  --At(root).root_users;
  EraseRootIfUnused(root);
}

void PrefixTree::EraseRootIfUnused(NodeId root) {
  if (At(root).root_users > 0 || has_children(root)) return;
  ReturnNode(root);
  --root_count_;
}

std::optional<NodeId> PrefixTree::FindRoot(const BlockHash& hash) const {
  const std::optional<NodeId> node = Lookup(hash);
  if (node.has_value()) KV_CHECK(is_root(*node));
  return node;
}

std::optional<NodeId> PrefixTree::FindChild(NodeId parent_node, const BlockHash& hash,
                                            std::span<const TokenId> tokens) const {
  const std::optional<NodeId> node = Lookup(hash);
  if (!node.has_value()) return std::nullopt;
  KV_CHECK_EQ(parent(*node), parent_node);
  const std::span<const TokenId> stored = this->tokens(*node);
  KV_CHECK(std::equal(stored.begin(), stored.end(), tokens.begin(), tokens.end()));
  return node;
}

std::optional<NodeId> PrefixTree::FindNode(NodeId root_node, const BlockHash& hash) const {
  const std::optional<NodeId> node = Lookup(hash);
  if (!node.has_value() || is_root(*node) || root(*node) != root_node) return std::nullopt;
  return node;
}

std::optional<NodeId> PrefixTree::node_at(uint32_t place) const {
  KV_CHECK_LT(place, nodes_.size());
  if (!nodes_[place].used || is_root(NodeId{place})) return std::nullopt;
  return NodeId{place};
}

PolicyBlock PrefixTree::policy_block(NodeId id) const {
  const Node& node = At(id);
  PolicyBlock block{0, node.depth, node.token_count};
  std::memcpy(&block.name, node.hash.bytes.data(), sizeof(block.name));
  return block;
}

std::optional<PrefixTree::PartialMatch> PrefixTree::LongestPartialMatch(
    NodeId parent_node, std::span<const TokenId> tokens) const {
  PartialMatch best;
  uint32_t scanned = 0;
  for (NodeId child = At(parent_node).first_child;
       child != kNoNode && scanned < kMaxScannedChildren; child = At(child).next, ++scanned) {
    const uint32_t common = CommonPrefix(this->tokens(child), tokens);
    if (common > best.token_count) best = PartialMatch{child, common};
  }
  if (best.node == kNoNode) return std::nullopt;
  return best;
}

std::optional<NodeId> PrefixTree::FindIdlePartialPrefix(NodeId parent_node,
                                                        std::span<const TokenId> tokens) const {
  uint32_t scanned = 0;
  for (NodeId child = At(parent_node).first_child;
       child != kNoNode && scanned < kMaxScannedChildren; child = At(child).next, ++scanned) {
    const Node& node = At(child);
    if (node.token_count >= tokens.size() || node.token_count == block_tokens_) continue;
    if (!node.idle[0] || CommonPrefix(this->tokens(child), tokens) != node.token_count) continue;
    return child;
  }
  return std::nullopt;
}

NodeId PrefixTree::Insert(NodeId parent_node, const BlockHash& hash,
                          std::span<const TokenId> tokens, std::span<const BlockId> blocks) {
  KV_CHECK(is_root(parent_node) || is_full(parent_node));
  KV_CHECK(!tokens.empty());
  KV_CHECK_LE(tokens.size(), block_tokens_);
  KV_CHECK_EQ(blocks.size(), group_count_);
  KV_CHECK_NE(blocks[0], kNoBlock);
  KV_CHECK(!Lookup(hash).has_value());
  const NodeId id = TakeNode(hash);
  Node& node = At(id);
  Node& above = At(parent_node);
  KV_CHECK(!above.idle[0]);
  node.parent = parent_node;
  node.next = above.first_child;
  if (above.first_child != kNoNode) At(above.first_child).previous = id;
  above.first_child = id;
  node.token_count = static_cast<uint32_t>(tokens.size());
  node.root = above.root;
  node.depth = above.depth + above.token_count;
  node.uses = 1;
  node.last_use = now_;
  for (uint32_t group = 0; group < group_count_; ++group) {
    node.blocks[group] = blocks[group];
    if (blocks[group] == kNoBlock) continue;
    KV_CHECK_EQ(owner(group, blocks[group]), kNoNode);
    owner_[group][Index(blocks[group])] = id;
    empty_slots_[group] += block_tokens_ - node.token_count;
  }
  std::copy(tokens.begin(), tokens.end(),
            tokens_.begin() + static_cast<ptrdiff_t>(Index(blocks[0]) * size_t{block_tokens_}));
  ++node_count_;
  policy_->Add(Index(blocks[0]), policy_block(id));
  return id;
}

void PrefixTree::Erase(NodeId id) {
  Node& node = At(id);
  KV_CHECK(!is_root(id));
  KV_CHECK_EQ(node.first_child, kNoNode);
  for (uint32_t group = 0; group < group_count_; ++group) {
    if (node.blocks[group] == kNoBlock) continue;
    if (node.idle[group]) MarkBusy(id, group);
    owner_[group][Index(node.blocks[group])] = kNoNode;
    empty_slots_[group] -= block_tokens_ - node.token_count;
  }
  policy_->Remove(Index(node.blocks[0]));
  const NodeId parent_node = node.parent;
  Node& above = At(parent_node);
  if (node.previous != kNoNode) At(node.previous).next = node.next;
  if (node.next != kNoNode) At(node.next).previous = node.previous;
  if (above.first_child == id) above.first_child = node.next;
  ReturnNode(id);
  --node_count_;
  if (above.first_child != kNoNode) return;
  if (is_root(parent_node)) {
    EraseRootIfUnused(parent_node);
  } else if (above.idle[0]) {
    policy_->Offer(Index(above.blocks[0]));
  }
}

void PrefixTree::AttachBlock(NodeId id, uint32_t group, BlockId block) {
  KV_CHECK_GT(group, 0u);
  KV_CHECK_LT(group, group_count_);
  KV_CHECK(!is_root(id));
  KV_CHECK_EQ(At(id).blocks[group], kNoBlock);
  KV_CHECK_EQ(owner(group, block), kNoNode);
  At(id).blocks[group] = block;
  owner_[group][Index(block)] = id;
  empty_slots_[group] += block_tokens_ - At(id).token_count;
}

void PrefixTree::DetachBlock(NodeId id, uint32_t group) {
  KV_CHECK_GT(group, 0u);
  KV_CHECK_LT(group, group_count_);
  const BlockId block = At(id).blocks[group];
  KV_CHECK_NE(block, kNoBlock);
  if (At(id).idle[group]) MarkBusy(id, group);
  At(id).blocks[group] = kNoBlock;
  owner_[group][Index(block)] = kNoNode;
  empty_slots_[group] -= block_tokens_ - At(id).token_count;
}

void PrefixTree::MarkIdle(NodeId id, uint32_t group, uint64_t stamp) {
  Node& node = At(id);
  KV_CHECK_LT(group, group_count_);
  KV_CHECK_NE(node.blocks[group], kNoBlock);
  KV_CHECK(!node.idle[group]);
  node.idle[group] = true;
  ++idle_count_[group];
  if (group > 0) {
    victims_[group].Push(Index(node.blocks[group]), stamp);
    return;
  }
  node.last_use = now_;
  policy_->Rest(Index(node.blocks[0]), stamp);
  if (node.first_child == kNoNode) policy_->Offer(Index(node.blocks[0]));
}

void PrefixTree::MarkBusy(NodeId id, uint32_t group) {
  Node& node = At(id);
  KV_CHECK_LT(group, group_count_);
  KV_CHECK(node.idle[group]);
  node.idle[group] = false;
  --idle_count_[group];
  if (group > 0) {
    victims_[group].Remove(Index(node.blocks[group]));
  } else if (node.first_child == kNoNode) {
    policy_->Withdraw(Index(node.blocks[0]));
  }
}

void PrefixTree::NoteUse(NodeId id) {
  Node& node = At(id);
  KV_CHECK(!is_root(id));
  if (node.uses < UINT32_MAX) ++node.uses;
  node.last_use = now_;
  policy_->Use(Index(node.blocks[0]));
}

std::optional<NodeId> PrefixTree::Victim(uint32_t group) {
  KV_CHECK_LT(group, group_count_);
  if (group == 0) {
    const std::optional<uint32_t> item = policy_->Victim();
    if (!item.has_value()) return std::nullopt;
    return owner(0, BlockId{*item});
  }
  if (victims_[group].empty()) return std::nullopt;
  return owner(group, BlockId{victims_[group].Top()});
}

std::span<const TokenId> PrefixTree::tokens(NodeId id) const {
  const Node& node = At(id);
  if (node.token_count == 0) return {};
  return std::span<const TokenId>(tokens_).subspan(Index(node.blocks[0]) * size_t{block_tokens_},
                                                   node.token_count);
}

void PrefixTree::CheckNode(NodeId id) const {
  const Node& node = At(id);
  KV_CHECK(Lookup(node.hash) == id);
  NodeId previous = kNoNode;
  for (NodeId child = node.first_child; child != kNoNode; child = At(child).next) {
    KV_CHECK_EQ(At(child).parent, id);
    KV_CHECK_EQ(At(child).previous, previous);
    // Whoever uses a node uses its ancestors.
    KV_CHECK(!node.idle[0] || At(child).idle[0]);
    previous = child;
  }
  if (is_root(id)) {
    KV_CHECK(node.root_users > 0 || has_children(id));
    KV_CHECK_EQ(node.token_count, 0u);
    KV_CHECK_EQ(node.root, id);
    return;
  }
  KV_CHECK(node.token_count > 0 && node.token_count <= block_tokens_);
  KV_CHECK(is_full(id) || !has_children(id));
  KV_CHECK(node.hash == ChildHash(hash(node.parent), tokens(id)));
  KV_CHECK_EQ(node.root, root(node.parent));
  KV_CHECK_EQ(node.depth, depth(node.parent) + At(node.parent).token_count);
  for (uint32_t group = 0; group < group_count_; ++group) {
    const BlockId held = node.blocks[group];
    if (held == kNoBlock) {
      KV_CHECK_GT(group, 0u);
      KV_CHECK(!node.idle[group]);
      continue;
    }
    KV_CHECK_EQ(owner(group, held), id);
    const bool candidate = node.idle[group] && (group > 0 || !has_children(id));
    const bool on_offer =
        group == 0 ? policy_->offered(Index(held)) : victims_[group].Contains(Index(held));
    KV_CHECK(on_offer == candidate);
    KV_CHECK(!node.idle[0] || node.idle[group]);
  }
}

void PrefixTree::CheckInvariants() const {
  uint32_t roots = 0;
  uint32_t used = 0;
  std::array<uint32_t, kMaxKvGroups> idle{};
  std::array<uint32_t, kMaxKvGroups> held{};
  std::array<uint64_t, kMaxKvGroups> empty{};
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].used) continue;
    ++used;
    CheckNode(NodeId{i});
    if (is_root(NodeId{i})) ++roots;
    for (uint32_t group = 0; group < group_count_; ++group) {
      if (nodes_[i].idle[group]) ++idle[group];
      if (nodes_[i].blocks[group] == kNoBlock) continue;
      ++held[group];
      empty[group] += is_root(NodeId{i}) ? 0 : block_tokens_ - nodes_[i].token_count;
    }
  }
  KV_CHECK_EQ(roots, root_count_);
  KV_CHECK_EQ(used - roots, node_count_);
  KV_CHECK_EQ(held[0], node_count_);
  policy_->CheckInvariants();
  for (uint32_t group = 0; group < group_count_; ++group) {
    KV_CHECK_EQ(idle[group], idle_count_[group]);
    KV_CHECK_EQ(empty[group], empty_slots_[group]);
    victims_[group].CheckInvariants();
    const auto owned = std::count_if(owner_[group].begin(), owner_[group].end(),
                                     [](NodeId node) { return node != kNoNode; });
    KV_CHECK_EQ(static_cast<uint32_t>(owned), held[group]);
  }
}

}  // namespace kvasir
