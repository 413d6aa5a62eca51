#include "kv/shadow_cache.h"

#include <utility>

#include "base/check.h"

namespace kvasir {

ShadowCache::ShadowCache(uint32_t max_blocks, uint32_t max_path,
                         std::unique_ptr<EvictionPolicy> policy)
    : policy_(std::move(policy)), table_(max_blocks), nodes_(max_blocks) {
  free_.reserve(max_blocks);
  for (uint32_t i = max_blocks; i > 0; --i) free_.push_back(i - 1);
  on_path_.reserve(max_path);
}

// `tail` is the last node in use and stays, whatever children it loses.
bool ShadowCache::EvictOne(uint32_t tail) {
  const std::optional<uint32_t> victim = policy_->Victim();
  if (!victim.has_value()) return false;
  policy_->Evict(*victim);
  policy_->Withdraw(*victim);
  policy_->Remove(*victim);
  const Node& node = nodes_[*victim];
  KV_CHECK_EQ(node.children, 0u);
  table_.Erase(node.name);
  free_.push_back(*victim);
  if (node.parent == kNone) return true;
  KV_CHECK_GT(nodes_[node.parent].children, 0u);
  if (--nodes_[node.parent].children == 0 && node.parent != tail) policy_->Offer(node.parent);
  return true;
}

uint32_t ShadowCache::Insert(const PolicyBlock& block, uint32_t parent) {
  const uint32_t node = free_.back();
  free_.pop_back();
  nodes_[node] = Node{block.name, parent, 0};
  if (parent != kNone) ++nodes_[parent].children;
  table_.Insert(block.name, node);
  policy_->Add(node, block);
  return node;
}

uint32_t ShadowCache::Request(std::span<const PolicyBlock> path, uint32_t capacity) {
  KV_CHECK_LE(capacity, nodes_.size());
  on_path_.clear();
  uint32_t tail = kNone;
  for (const PolicyBlock& block : path) {
    const std::optional<uint32_t> node = table_.Find(block.name);
    if (!node.has_value() || nodes_[*node].parent != tail) break;
    policy_->Use(*node);
    tail = *node;
    on_path_.push_back(tail);
  }
  const uint32_t found = static_cast<uint32_t>(on_path_.size());
  if (tail != kNone && nodes_[tail].children == 0) policy_->Withdraw(tail);
  bool room = true;
  while (room && block_count() > capacity) room = EvictOne(tail);
  for (size_t i = found; i < path.size(); ++i) {
    while (room && block_count() >= capacity) room = EvictOne(tail);
    // The second can happen when two blocks' names agree in their first bits.
    if (!room || table_.Find(path[i].name).has_value()) break;
    tail = Insert(path[i], tail);
    on_path_.push_back(tail);
  }
  for (size_t i = on_path_.size(); i > 0; --i) policy_->Rest(on_path_[i - 1], ++stamp_);
  if (tail != kNone && nodes_[tail].children == 0) policy_->Offer(tail);
  return found;
}

void ShadowCache::CheckInvariants() const {
  policy_->CheckInvariants();
  KV_CHECK_EQ(free_.size() + block_count(), nodes_.size());
  std::vector<bool> used(nodes_.size(), true);
  for (const uint32_t node : free_) used[node] = false;
  std::vector<uint32_t> children(nodes_.size(), 0);
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!used[i]) continue;
    KV_CHECK(table_.Find(nodes_[i].name) == i);
    if (nodes_[i].parent != kNone) ++children[nodes_[i].parent];
  }
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!used[i]) continue;
    KV_CHECK_EQ(children[i], nodes_[i].children);
    KV_CHECK(policy_->offered(i) == (children[i] == 0));
  }
}

}  // namespace kvasir
