// What people see of a PagedKvCache and do to it: listing, pins, clearing.
#include <algorithm>

#include "base/check.h"
#include "kv/paged_kv_cache.h"
#include "kv/paged_kv_cache_sequence.h"

namespace kvasir {
namespace {

// What one owner may have of `all` when others have `others`: half of what they leave, so that
// nobody can take the last of it.
uint32_t ShareLimit(uint32_t all, uint32_t others) {
  return others >= all ? 0 : (all - others + 1) / 2;
}

// Of nodes that a page of a listing looks at. A page of a large cache with few blocks of one tenant
// may be empty: 4,096 nodes are some 30 microseconds, which a step between two pages hides.
constexpr uint32_t kMostLookedAt = 4096;

}  // namespace

void PagedKvCache::AdvanceTo(TimeUs now) {
  now_ = now;
  tree_->AdvanceTo(now);
  if (now < next_expiry_) return;
  next_expiry_ = kNever;
  for (size_t i = pins_.size(); i > 0; --i) {
    if (pins_[i - 1].until <= now) {
      Unpin(i - 1);
    } else {
      next_expiry_ = std::min(next_expiry_, pins_[i - 1].until);
    }
  }
}

KvPage PagedKvCache::ListCached(const BlockHash& root, KvCursor from,
                                std::span<KvCachedEntry> out) const {
  KvPage page;
  const std::optional<NodeId> root_node = tree_->FindRoot(root);
  if (!root_node.has_value() || out.empty()) return page;
  const uint32_t places = tree_->place_count();
  uint32_t place = static_cast<uint32_t>(std::min<uint64_t>(from.at, places));
  for (uint32_t looked = 0; place < places && looked < kMostLookedAt && page.count < out.size();
       ++place, ++looked) {
    const std::optional<NodeId> node = tree_->node_at(place);
    if (!node.has_value() || tree_->root(*node) != *root_node) continue;
    KvCachedEntry& entry = out[page.count++];
    entry = KvCachedEntry{};
    entry.hash = tree_->hash(*node);
    entry.parent = tree_->hash(tree_->parent(*node));
    entry.depth = tree_->depth(*node);
    entry.tokens = static_cast<uint32_t>(tree_->tokens(*node).size());
    entry.uses = tree_->uses(*node);
    entry.last_use = tree_->last_use(*node);
    entry.pinned = pins_of_[0][Index(tree_->block(*node, 0))] > 0;
    entry.busy = groups_[0]->pool.pins(tree_->block(*node, 0)) >
                 1u + pins_of_[0][Index(tree_->block(*node, 0))];
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      if (tree_->block(*node, group) != kNoBlock) entry.bytes += layout().block_bytes(group);
    }
    if (!entry.pinned) continue;
    for (const Pin& pin : pins_) {
      if (pin.node == *node) entry.pinned_until = pin.until;
    }
  }
  if (place < places) page.next = KvCursor{place};
  return page;
}

uint32_t PagedKvCache::CachedTokens(const BlockHash& root, const BlockHash& hash,
                                    std::span<TokenId> out) const {
  const std::optional<NodeId> root_node = tree_->FindRoot(root);
  if (!root_node.has_value()) return 0;
  const std::optional<NodeId> node = tree_->FindNode(*root_node, hash);
  if (!node.has_value()) return 0;
  const std::span<const TokenId> tokens = tree_->tokens(*node);
  const size_t count = std::min(tokens.size(), out.size());
  std::copy_n(tokens.begin(), count, out.begin());
  return static_cast<uint32_t>(count);
}

KvPin PagedKvCache::PinCached(const BlockHash& root, std::span<const TokenId> tokens,
                              KvPinTerms terms) {
  tokens = tokens.first(std::min<size_t>(tokens.size(), max_sequence_tokens()));
  return PinPath(FindPrefix(root, tokens, static_cast<uint32_t>(tokens.size())), terms);
}

KvPin PagedKvCache::PinCached(const BlockHash& root, const BlockHash& hash, KvPinTerms terms) {
  path_.clear();
  const std::optional<NodeId> root_node = tree_->FindRoot(root);
  const std::optional<NodeId> node =
      root_node.has_value() ? tree_->FindNode(*root_node, hash) : std::nullopt;
  if (!node.has_value()) return PinPath(0, terms);
  for (NodeId at = *node; at != *root_node; at = tree_->parent(at)) path_.push_back(at);
  std::reverse(path_.begin(), path_.end());
  const uint32_t token_count =
      LimitByWindows(tree_->depth(*node) + static_cast<uint32_t>(tree_->tokens(*node).size()));
  path_.resize(BlocksFor(token_count));
  return PinPath(token_count, terms);
}

// Pins the path of `token_count` tokens that lies in path_.
KvPin PagedKvCache::PinPath(uint32_t token_count, KvPinTerms terms) {
  KvPin result;
  result.outcome = KvPinOutcome::kNotCached;
  if (token_count == 0) return result;
  const NodeId node = path_.back();
  result.hash = tree_->hash(node);
  result.tokens = token_count;
  result.blocks = static_cast<uint32_t>(path_.size());
  auto pin = std::find_if(pins_.begin(), pins_.end(), [&](const Pin& p) { return p.node == node; });
  const bool is_new = pin == pins_.end();
  for (const Pin& other : pins_) {
    if (tree_->root(other.node) == tree_->root(node)) terms.owner = other.owner;
  }
  PinShare& share = ShareOf(terms.owner);
  const auto limit = [&](uint32_t group) {
    return ShareLimit(block_count(group) / 2, pinned_blocks_[group] - share.blocks[group]);
  };
  result.limit = limit(0);
  const uint32_t other_pins = static_cast<uint32_t>(pins_.size()) - share.pins;
  if (is_new && share.pins >= ShareLimit(kMostPins, other_pins)) {
    result.outcome = KvPinOutcome::kTooMany;
    return result;
  }
  // A pin that ends in the same block has its blocks from a certain one on; of a window group an
  // earlier end wants earlier ones too.
  const auto end = [&](uint32_t group) {
    return is_new ? static_cast<uint32_t>(path_.size()) : FirstNeeded(group, pin->tokens);
  };
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    uint32_t blocks = share.blocks[group];
    for (uint32_t i = FirstNeeded(group, token_count); i < end(group); ++i) {
      if (pins_of_[group][Index(tree_->block(path_[i], group))] == 0) ++blocks;
    }
    // Who asks for no more may have more than the limit is now: others have come since.
    if (blocks > share.blocks[group] && blocks > limit(group)) {
      result.outcome = KvPinOutcome::kOverLimit;
      return result;
    }
  }
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    for (uint32_t i = FirstNeeded(group, token_count); i < end(group); ++i) {
      const BlockId block = tree_->block(path_[i], group);
      PinBlock(group, block);
      if (pins_of_[group][Index(block)]++ > 0) continue;
      ++pinned_blocks_[group];
      ++share.blocks[group];
    }
  }
  if (is_new) ++share.pins;
  if (is_new) pin = pins_.insert(pins_.end(), Pin{node, token_count, terms.until, terms.owner});
  pin->tokens = std::min(pin->tokens, token_count);
  pin->until = terms.until;
  next_expiry_ = std::min(next_expiry_, terms.until);
  result.outcome = KvPinOutcome::kPinned;
  return result;
}

// Of an owner without pins an empty one is made.
PagedKvCache::PinShare& PagedKvCache::ShareOf(uint32_t owner) {
  std::erase_if(pin_shares_,
                [&](const PinShare& share) { return share.pins == 0 && share.owner != owner; });
  for (PinShare& share : pin_shares_) {
    if (share.owner == owner) return share;
  }
  PinShare& share = pin_shares_.emplace_back();
  share.owner = owner;
  return share;
}

void PagedKvCache::Unpin(size_t index) {
  const Pin pin = pins_[index];
  PinShare& share = ShareOf(pin.owner);
  --share.pins;
  pins_[index] = pins_.back();
  pins_.pop_back();
  // In the order of Close: window groups first, the deepest first.
  for (uint32_t group = static_cast<uint32_t>(groups_.size()); group-- > 0;) {
    NodeId node = pin.node;
    for (uint32_t i = BlocksFor(pin.tokens); i-- > FirstNeeded(group, pin.tokens);) {
      const BlockId block = tree_->block(node, group);
      node = tree_->parent(node);
      KV_CHECK_GT(pins_of_[group][Index(block)], 0u);
      if (--pins_of_[group][Index(block)] == 0) {
        --pinned_blocks_[group];
        --share.blocks[group];
      }
      UnpinBlock(group, block);
    }
  }
}

// The one that would end first. False when there is none.
bool PagedKvCache::BreakPin() {
  if (pins_.empty()) return false;
  const auto first = std::min_element(pins_.begin(), pins_.end(),
                                      [](const Pin& a, const Pin& b) { return a.until < b.until; });
  Unpin(static_cast<size_t>(first - pins_.begin()));
  ++counters_.broken_pins;
  return true;
}

bool PagedKvCache::UnpinCached(const BlockHash& root, const BlockHash& hash) {
  const std::optional<NodeId> root_node = tree_->FindRoot(root);
  if (!root_node.has_value()) return false;
  const std::optional<NodeId> node = tree_->FindNode(*root_node, hash);
  if (!node.has_value()) return false;
  for (size_t i = 0; i < pins_.size(); ++i) {
    if (pins_[i].node != *node) continue;
    Unpin(i);
    return true;
  }
  return false;
}

KvCleared PagedKvCache::ClearCached(const BlockHash& root, KvCursor from, uint32_t most) {
  KvCleared cleared;
  const uint32_t places = tree_->place_count();
  uint32_t place = static_cast<uint32_t>(std::min<uint64_t>(from.at, places));
  for (uint32_t looked = 0; place < places && looked < most; ++place, ++looked) {
    const std::optional<NodeId> root_node = tree_->FindRoot(root);
    if (!root_node.has_value()) return cleared;
    std::optional<NodeId> node = tree_->node_at(place);
    // From a leaf up: whose last child goes is a leaf then, and may lie behind us.
    while (node.has_value() && !tree_->is_root(*node) && tree_->root(*node) == *root_node &&
           tree_->idle(*node, 0) && !tree_->has_children(*node)) {
      const NodeId parent = tree_->parent(*node);
      const bool last = parent == *root_node;
      EraseNode(*node);
      ++cleared.blocks;
      node = last ? std::nullopt : std::optional<NodeId>(parent);
    }
  }
  if (place < places) cleared.next = KvCursor{place};
  return cleared;
}

// Adds one to counts[block] for each pin that owns the block.
void PagedKvCache::CountPins(uint32_t group, std::span<uint32_t> counts) const {
  std::vector<uint32_t> own(counts.size(), 0);
  for (const Pin& pin : pins_) {
    NodeId node = pin.node;
    KV_CHECK_EQ(tree_->depth(node) / layout().block_tokens + 1, BlocksFor(pin.tokens));
    for (uint32_t i = BlocksFor(pin.tokens); i-- > FirstNeeded(group, pin.tokens);) {
      ++own[Index(tree_->block(node, group))];
      node = tree_->parent(node);
    }
  }
  uint32_t pinned = 0;
  for (uint32_t i = 0; i < counts.size(); ++i) {
    KV_CHECK_EQ(own[i], pins_of_[group][i]);
    if (own[i] > 0) ++pinned;
    counts[i] += own[i];
  }
  KV_CHECK_EQ(pinned, pinned_blocks_[group]);
  uint32_t of_shares = 0, pins_of_shares = 0;
  for (const PinShare& share : pin_shares_) {
    of_shares += share.blocks[group];
    pins_of_shares += share.pins;
  }
  KV_CHECK_EQ(of_shares, pinned);
  KV_CHECK_EQ(pins_of_shares, pins_.size());
  KV_CHECK_LE(pinned, block_count(group) / 2);
}

void PagedKvCache::SetDepthCost(double depth_cost) { tree_->policy().SetDepthCost(depth_cost); }

KvEviction PagedKvCache::eviction() const {
  KvEviction eviction;
  eviction.policy = evict_;
  eviction.ruling = evict_;
  eviction.evictions = evictions_;
  tree_->policy().Report(&eviction);
  return eviction;
}

}  // namespace kvasir
