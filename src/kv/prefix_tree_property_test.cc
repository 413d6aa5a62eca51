#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"
#include "kv/prefix_tree.h"

namespace kvasir {
namespace {

constexpr uint32_t kBlockTokens = 3;
constexpr uint32_t kBlocks = 24;

using Tokens = std::vector<TokenId>;

struct ModelNode {
  NodeId id = kNoNode;
  BlockId blocks[2] = {kNoBlock, kNoBlock};
  bool idle[2] = {false, false};
  uint64_t stamp[2] = {0, 0};
  uint64_t born = 0;
};

// The tree against a map from whole prefixes to nodes. One root; ownership is random within the
// rule that whoever uses a node uses its ancestors.
class TreeWalk {
 public:
  explicit TreeWalk(uint64_t seed) : rng_(seed), tree_({kBlockTokens, {kBlocks, kBlocks}, 1}) {
    root_hash_.bytes[5] = 77;
    root_ = tree_.AcquireRoot(root_hash_);
    for (auto& free : free_) {
      for (uint32_t i = 0; i < kBlocks; ++i) free.insert(BlockId{i});
    }
  }

  void Step() {
    switch (rng_.Below(8)) {
      case 0:
      case 1:
      case 2:
        Insert();
        break;
      case 3:
        EraseVictim(0);
        break;
      case 4:
        EraseVictim(1);
        break;
      case 5:
      case 6:
        ChangeOwners();
        break;
      case 7:
        Attach();
        break;
    }
    tree_.CheckInvariants();
    CheckFinds();
    CheckVictims();
  }

  void Finish() {
    while (!nodes_.empty()) {
      const auto deepest = std::max_element(
          nodes_.begin(), nodes_.end(),
          [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
      tree_.Erase(deepest->second.id);
      nodes_.erase(deepest);
      tree_.CheckInvariants();
    }
    EXPECT_EQ(tree_.root_count(), 1u);
    tree_.ReleaseRoot(root_);
    EXPECT_EQ(tree_.root_count(), 0u);
    EXPECT_EQ(tree_.FindRoot(root_hash_), std::nullopt);
  }

 private:
  Tokens RandomTokens(uint64_t count) {
    Tokens tokens;
    for (uint64_t i = 0; i < count; ++i) {
      tokens.push_back(TokenId{static_cast<int32_t>(rng_.Below(2))});
    }
    return tokens;
  }
  BlockHash NameOf(const Tokens& prefix) const {
    BlockHash name = root_hash_;
    for (size_t begin = 0; begin < prefix.size(); begin += kBlockTokens) {
      const size_t count = std::min<size_t>(kBlockTokens, prefix.size() - begin);
      name = ChildHash(name, std::span(prefix).subspan(begin, count));
    }
    return name;
  }
  static Tokens ParentOf(const Tokens& prefix) {
    Tokens parent = prefix;
    parent.resize((prefix.size() - 1) / kBlockTokens * kBlockTokens);
    return parent;
  }
  std::vector<const std::pair<const Tokens, ModelNode>*> ChildrenOf(const Tokens& prefix) const {
    std::vector<const std::pair<const Tokens, ModelNode>*> children;
    for (const auto& entry : nodes_) {
      if (ParentOf(entry.first) == prefix) children.push_back(&entry);
    }
    return children;
  }
  // The root's prefix, or a random full node's.
  Tokens RandomParent() {
    std::vector<Tokens> full = {Tokens{}};
    for (const auto& [prefix, node] : nodes_) {
      if (prefix.size() % kBlockTokens == 0) full.push_back(prefix);
    }
    return full[rng_.Below(full.size())];
  }
  NodeId IdOf(const Tokens& prefix) const { return prefix.empty() ? root_ : nodes_.at(prefix).id; }

  void Insert() {
    const Tokens parent = RandomParent();
    if (free_[0].empty() || (!parent.empty() && nodes_.at(parent).idle[0])) return;
    Tokens prefix = parent;
    const Tokens own = RandomTokens(rng_.Below(3) == 0 ? 1 + rng_.Below(2) : kBlockTokens);
    prefix.insert(prefix.end(), own.begin(), own.end());
    if (nodes_.count(prefix) > 0) return;
    ModelNode node;
    node.born = ++clock_;
    for (uint32_t group = 0; group < 2; ++group) {
      if (free_[group].empty() || (group == 1 && rng_.Below(3) == 0)) continue;
      node.blocks[group] = *free_[group].begin();
      free_[group].erase(free_[group].begin());
    }
    node.id = tree_.Insert(IdOf(parent), NameOf(prefix), own, node.blocks);
    nodes_[prefix] = node;
  }

  void Free(uint32_t group, BlockId block) {
    if (block != kNoBlock) {
      ASSERT_TRUE(free_[group].insert(block).second);
    }
  }

  void EraseVictim(uint32_t group) {
    const auto victim = tree_.Victim(group);
    if (!victim.has_value()) return;
    const auto it = std::find_if(nodes_.begin(), nodes_.end(),
                                 [&](const auto& entry) { return entry.second.id == *victim; });
    ASSERT_NE(it, nodes_.end());
    if (group == 0) {
      tree_.Erase(*victim);
      for (uint32_t g = 0; g < 2; ++g) Free(g, it->second.blocks[g]);
      nodes_.erase(it);
    } else {
      tree_.DetachBlock(*victim, 1);
      Free(1, it->second.blocks[1]);
      it->second.blocks[1] = kNoBlock;
      it->second.idle[1] = false;
    }
  }

  void ChangeOwners() {
    if (nodes_.empty()) return;
    auto& entry = *std::next(nodes_.begin(), static_cast<long>(rng_.Below(nodes_.size())));
    const Tokens& prefix = entry.first;
    ModelNode& node = entry.second;
    const auto mark = [&](uint32_t group, bool idle) {
      if (node.blocks[group] == kNoBlock || node.idle[group] == idle) return;
      node.idle[group] = idle;
      node.stamp[group] = rng_.Below(50);  // Any order, and ties.
      if (idle)
        tree_.MarkIdle(node.id, group, node.stamp[group]);
      else
        tree_.MarkBusy(node.id, group);
    };
    if (node.idle[0]) {
      const Tokens parent = ParentOf(prefix);
      if (!parent.empty() && nodes_.at(parent).idle[0]) return;
      mark(0, false);
    } else if (rng_.Below(2) == 0) {
      mark(1, !node.idle[1]);
    } else {
      for (const auto* child : ChildrenOf(prefix)) {
        if (!child->second.idle[0]) return;
      }
      mark(1, true);
      mark(0, true);
    }
  }

  void Attach() {
    if (nodes_.empty() || free_[1].empty()) return;
    auto& [prefix, node] = *std::next(nodes_.begin(), static_cast<long>(rng_.Below(nodes_.size())));
    if (node.blocks[1] != kNoBlock || node.idle[0]) return;
    node.blocks[1] = *free_[1].begin();
    free_[1].erase(free_[1].begin());
    tree_.AttachBlock(node.id, 1, node.blocks[1]);
  }

  void CheckFinds() {
    ASSERT_EQ(tree_.node_count(), nodes_.size());
    const Tokens parent = RandomParent();
    Tokens prefix = parent;
    const Tokens own = RandomTokens(1 + rng_.Below(kBlockTokens));
    prefix.insert(prefix.end(), own.begin(), own.end());
    const auto found = tree_.FindChild(IdOf(parent), NameOf(prefix), own);
    ASSERT_EQ(found.has_value(), nodes_.count(prefix) == 1);
    if (found.has_value()) {
      const ModelNode& node = nodes_.at(prefix);
      ASSERT_EQ(*found, node.id);
      ASSERT_EQ(tree_.block(*found, 0), node.blocks[0]);
      ASSERT_EQ(tree_.block(*found, 1), node.blocks[1]);
      ASSERT_EQ(tree_.parent(*found), IdOf(parent));
    }
    // The longest common prefix among the children, the newest of equals.
    uint32_t best = 0;
    const ModelNode* best_node = nullptr;
    bool idle_partial = false;
    for (const auto* child : ChildrenOf(parent)) {
      const size_t size = child->first.size() - parent.size();
      uint32_t common = 0;
      while (common < size && common < own.size() &&
             child->first[parent.size() + common] == own[common]) {
        ++common;
      }
      idle_partial |=
          size < kBlockTokens && size < own.size() && common == size && child->second.idle[0];
      if (common == 0 || common < best) continue;
      if (common == best && child->second.born < best_node->born) continue;
      best = common;
      best_node = &child->second;
    }
    const auto match = tree_.LongestPartialMatch(IdOf(parent), own);
    ASSERT_EQ(match.has_value(), best > 0);
    if (match.has_value()) {
      ASSERT_EQ(match->token_count, best);
      ASSERT_EQ(match->node, best_node->id);
    }
    ASSERT_EQ(tree_.FindIdlePartialPrefix(IdOf(parent), own).has_value(), idle_partial);
  }

  void CheckVictims() {
    for (uint32_t group = 0; group < 2; ++group) {
      const ModelNode* oldest = nullptr;
      uint32_t idle = 0;
      for (const auto& [prefix, node] : nodes_) {
        if (!node.idle[group]) continue;
        ++idle;
        if (group == 0 && !ChildrenOf(prefix).empty()) continue;
        if (oldest == nullptr || node.stamp[group] < oldest->stamp[group] ||
            (node.stamp[group] == oldest->stamp[group] &&
             node.blocks[group] < oldest->blocks[group])) {
          oldest = &node;
        }
      }
      ASSERT_EQ(tree_.idle_count(group), idle);
      const auto victim = tree_.Victim(group);
      ASSERT_EQ(victim.has_value(), oldest != nullptr);
      if (oldest != nullptr) {
        ASSERT_EQ(*victim, oldest->id);
      }
    }
  }

  Rng rng_;
  PrefixTree tree_;
  BlockHash root_hash_;
  NodeId root_;
  uint64_t clock_ = 0;
  std::map<Tokens, ModelNode> nodes_;
  std::set<BlockId> free_[2];
};

TEST(PrefixTreeProperty, AgreesWithAMapOfPrefixes) {
  for (const uint64_t seed : TestSeeds(/*count=*/20)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    TreeWalk walk(seed);
    for (int step = 0; step < 1500; ++step) {
      walk.Step();
      if (HasFatalFailure()) FAIL() << "at step " << step;
    }
    walk.Finish();
  }
}

// A million nodes: wide and deep, found by name, evicted leaves first.
TEST(PrefixTree, AMillionNodes) {
  constexpr uint32_t kNodes = 1'000'000;
  constexpr uint32_t kDepth = 1000;
  PrefixTree tree({1, {kNodes}, 1});
  const NodeId root = tree.AcquireRoot(BlockHash{});
  uint64_t stamp = 0;
  std::vector<NodeId> branch;
  for (uint32_t b = 0; b < kNodes / kDepth; ++b) {
    branch.assign(1, root);
    BlockHash name;
    for (uint32_t depth = 0; depth < kDepth; ++depth) {
      const TokenId token{static_cast<int32_t>(depth == 0 ? b : depth)};
      // Any distinct names do here; hashing a million blocks is block_hash_test's business.
      const uint64_t words[2] = {Mix64(b * uint64_t{kDepth} + depth), depth};
      std::copy_n(reinterpret_cast<const uint8_t*>(words), sizeof(words), name.bytes.begin());
      const BlockId block{b * kDepth + depth};
      branch.push_back(
          tree.Insert(branch.back(), name, std::span(&token, 1), std::span(&block, 1)));
    }
    for (uint32_t depth = kDepth; depth > 0; --depth) tree.MarkIdle(branch[depth], 0, ++stamp);
  }
  EXPECT_EQ(tree.node_count(), kNodes);
  EXPECT_EQ(tree.idle_count(0), kNodes);
  // Branch by branch from its leaf up, since a parent was used after its children.
  for (uint32_t i = 0; i < kNodes; ++i) {
    const auto victim = tree.Victim(0);
    ASSERT_TRUE(victim.has_value());
    ASSERT_EQ(tree.block(*victim, 0), BlockId{i / kDepth * kDepth + kDepth - 1 - i % kDepth});
    tree.Erase(*victim);
  }
  EXPECT_EQ(tree.node_count(), 0u);
  tree.ReleaseRoot(root);
  EXPECT_EQ(tree.root_count(), 0u);
}

TEST(PrefixTree, TenantsHaveTheirOwnRoots) {
  PrefixTree tree({2, {4}, 2});
  BlockHash other;
  other.bytes[0] = 1;
  const NodeId a = tree.AcquireRoot(BlockHash{});
  const NodeId b = tree.AcquireRoot(other);
  EXPECT_NE(a, b);
  const TokenId tokens[] = {TokenId{1}, TokenId{2}};
  const BlockId block{0};
  tree.Insert(a, ChildHash(BlockHash{}, tokens), tokens, std::span(&block, 1));
  EXPECT_TRUE(tree.LongestPartialMatch(a, tokens).has_value());
  EXPECT_FALSE(tree.LongestPartialMatch(b, tokens).has_value());
  EXPECT_FALSE(tree.FindChild(b, ChildHash(other, tokens), tokens).has_value());
  tree.ReleaseRoot(b);
  EXPECT_EQ(tree.root_count(), 1u);
  tree.ReleaseRoot(a);  // Stays: it has a child.
  EXPECT_EQ(tree.root_count(), 1u);
}

TEST(PrefixTreeDeathTest, Misuse) {
  PrefixTree tree({2, {4, 4}, 1});
  const NodeId root = tree.AcquireRoot(BlockHash{});
  const TokenId tokens[] = {TokenId{1}, TokenId{2}};
  const BlockHash name = ChildHash(BlockHash{}, tokens);
  const BlockId blocks[] = {BlockId{0}, kNoBlock};
  const NodeId node = tree.Insert(root, name, tokens, blocks);
  EXPECT_DEATH(tree.Insert(root, name, tokens, blocks), "prefix_tree.cc");
  const TokenId others[] = {TokenId{1}, TokenId{3}};
  EXPECT_DEATH(tree.FindChild(root, name, others), "prefix_tree.cc");
  EXPECT_DEATH(tree.DetachBlock(node, 0), "prefix_tree.cc");
  EXPECT_DEATH(tree.DetachBlock(node, 1), "prefix_tree.cc");
  EXPECT_DEATH(tree.MarkBusy(node, 0), "prefix_tree.cc");
  EXPECT_DEATH(tree.MarkIdle(node, 1, 1), "prefix_tree.cc");
  EXPECT_DEATH(tree.Erase(root), "prefix_tree.cc");
  tree.MarkIdle(node, 0, 1);
  EXPECT_DEATH(tree.MarkIdle(node, 0, 2), "prefix_tree.cc");
  // A child of a node that nobody uses: it could be evicted under the child's user.
  const BlockId more[] = {BlockId{1}, kNoBlock};
  EXPECT_DEATH(tree.Insert(node, ChildHash(name, tokens), tokens, more), "prefix_tree.cc");
  EXPECT_DEATH(tree.hash(NodeId{5}), "prefix_tree.cc");
}

}  // namespace
}  // namespace kvasir
