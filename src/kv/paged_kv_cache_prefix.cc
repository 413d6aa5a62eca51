// KvCache's dealings with the prefix tree: finding, adopting and publishing cached prefixes.
#include <algorithm>

#include "base/check.h"
#include "kv/paged_kv_cache.h"
#include "kv/paged_kv_cache_sequence.h"

namespace kvasir {
namespace {
// Continuation is asked for at each step: of more branches it looks at the newest only.
constexpr uint32_t kMostBranches = 32;

// What a prompt may reuse: its last token must be computed.
uint32_t LastButOne(std::span<const TokenId> tokens) {
  return tokens.empty() ? 0 : static_cast<uint32_t>(tokens.size()) - 1;
}
}  // namespace

// Index of the first block that a sequence with tokens [0, position) must have in this group to
// compute the token at `position`.
uint32_t PagedKvCache::FirstNeeded(uint32_t group, uint32_t position) const {
  const uint32_t window = groups_[group]->window;
  if (window == 0 || position < window) return 0;
  return (position + 1 - window) / layout().block_tokens;
}

// The largest n <= token_count such that the nodes of path_ have all window blocks that a prefix of
// n tokens needs.
uint32_t PagedKvCache::LimitByWindow(uint32_t group, uint32_t token_count) const {
  while (token_count > 0) {
    const uint32_t first = FirstNeeded(group, token_count);
    uint32_t end = BlocksFor(token_count);
    while (end > first && tree_->block(path_[end - 1], group) != kNoBlock) --end;
    if (end <= first) return token_count;
    // Block end - 1 is missing, and every n beyond its begin needs it too: its first needed block
    // lies at or before it.
    token_count = (end - 1) * layout().block_tokens;
  }
  return 0;
}

// The child of `node` that is the whole block `block`.
std::optional<NodeId> PagedKvCache::FullChild(NodeId node, std::span<const TokenId> block) const {
  // A child's name is its parent's and its tokens, so equal tokens are as good, without hashing
  // them: below the first blocks a node rarely has more than one child.
  constexpr uint32_t kMostCompared = 4;
  NodeId child = tree_->newest_child(node);
  for (uint32_t i = 0; i < kMostCompared; ++i) {
    if (child == kNoNode) return std::nullopt;  // Those were all.
    const std::span<const TokenId> tokens = tree_->tokens(child);
    if (std::equal(tokens.begin(), tokens.end(), block.begin(), block.end())) return child;
    child = tree_->older_sibling(child);
  }
  if (child == kNoNode) return std::nullopt;
  return tree_->FindChild(node, ChildHash(tree_->hash(node), block), block);
}

// Walks down from *node along whole blocks of `tokens`, appends the nodes to path_, and returns the
// tokens that are left.
std::span<const TokenId> PagedKvCache::FollowFullBlocks(std::span<const TokenId> tokens,
                                                        NodeId* node) const {
  path_.clear();
  while (tokens.size() >= layout().block_tokens) {
    const std::span<const TokenId> block = tokens.first(layout().block_tokens);
    const std::optional<NodeId> child = FullChild(*node, block);
    if (!child.has_value()) break;
    *node = *child;
    path_.push_back(*node);
    tokens = tokens.subspan(layout().block_tokens);
  }
  return tokens;
}

// Of all groups.
uint32_t PagedKvCache::LimitByWindows(uint32_t token_count) const {
  for (uint32_t before = token_count + 1; before != token_count;) {
    before = token_count;
    for (uint32_t group = 1; group < groups_.size(); ++group) {
      token_count = LimitByWindow(group, token_count);
    }
  }
  return token_count;
}

// The longest cached prefix of `tokens` of at most `limit`; path_ gets its nodes.
uint32_t PagedKvCache::FindPrefix(const BlockHash& root, std::span<const TokenId> tokens,
                                  uint32_t limit) const {
  path_.clear();
  KV_CHECK_LE(tokens.size(), max_sequence_tokens());
  if (limit == 0) return 0;
  const std::optional<NodeId> root_node = tree_->FindRoot(root);
  if (!root_node.has_value()) return 0;
  NodeId node = *root_node;
  const std::span<const TokenId> rest = FollowFullBlocks(tokens, &node);
  uint32_t token_count = static_cast<uint32_t>(tokens.size() - rest.size());
  // K and V of a token depend on the tokens before it only, so the first slots of a block serve
  // every prompt that begins like it; but for a staged layout, where they wait for each other.
  const std::optional<PrefixTree::PartialMatch> partial =
      layout().staged()
          ? std::nullopt
          : tree_->LongestPartialMatch(
                node, rest.first(std::min<size_t>(rest.size(), layout().block_tokens)));
  if (partial.has_value()) {
    path_.push_back(partial->node);
    token_count += partial->token_count;
  }
  token_count = LimitByWindows(Reusable(std::min(token_count, limit)));
  path_.resize(BlocksFor(token_count), kNoNode);
  return token_count;
}

uint32_t PagedKvCache::MatchTokens(const BlockHash& root, std::span<const TokenId> tokens) const {
  return FindPrefix(root, tokens, LastButOne(tokens));
}

std::optional<KvDivergence> PagedKvCache::DivergedAt(const BlockHash& root,
                                                     std::span<const TokenId> tokens) const {
  const std::optional<NodeId> root_node = tree_->FindRoot(root);
  if (!root_node.has_value()) return std::nullopt;
  NodeId node = *root_node;
  const std::span<const TokenId> rest = FollowFullBlocks(tokens, &node);
  const uint32_t followed = static_cast<uint32_t>(tokens.size() - rest.size());
  if (rest.empty()) return std::nullopt;
  uint32_t shared = 0;
  NodeId next = tree_->newest_child(node);
  if (const auto partial = tree_->LongestPartialMatch(
          node, rest.first(std::min<size_t>(rest.size(), layout().block_tokens)))) {
    next = partial->node;
    shared = partial->token_count;
  }
  // Nothing goes on there, or nothing at all was followed.
  if (next == kNoNode || followed + shared == 0) return std::nullopt;
  std::span<const TokenId> branch = tree_->tokens(next).subspan(shared);
  if (branch.empty() || rest.size() == shared) return std::nullopt;
  KvDivergence divergence;
  divergence.at = followed + shared;
  while (true) {
    for (const TokenId token : branch) {
      if (divergence.cached_count == divergence.cached.size()) return divergence;
      divergence.cached[divergence.cached_count++] = token;
    }
    next = tree_->newest_child(next);
    if (next == kNoNode) return divergence;
    branch = tree_->tokens(next);
  }
}

uint32_t PagedKvCache::Continuation(SequenceId id, std::span<const TokenId> next,
                                    std::span<TokenId> out) const {
  const Sequence& sequence = At(id);
  // Tokens below the last full block, then `next`: a child must begin with what is left of them.
  const std::array<std::span<const TokenId>, 2> wanted = {sequence.tail_tokens, next};
  const size_t wanted_count = wanted[0].size() + wanted[1].size();
  size_t followed = 0;
  const auto goes_on = [&](std::span<const TokenId> tokens) {
    for (size_t i = 0; i < tokens.size() && followed + i < wanted_count; ++i) {
      const size_t at = followed + i;
      const TokenId want = at < wanted[0].size() ? wanted[0][at] : wanted[1][at - wanted[0].size()];
      if (tokens[i] != want) return false;
    }
    return tokens.size() == layout().block_tokens || followed + tokens.size() > wanted_count;
  };
  uint32_t count = 0;
  for (NodeId parent = sequence.tail; count < out.size();) {
    NodeId child = tree_->newest_child(parent);
    for (uint32_t scanned = 0; child != kNoNode && !goes_on(tree_->tokens(child));) {
      child = ++scanned < kMostBranches ? tree_->older_sibling(child) : kNoNode;
    }
    if (child == kNoNode) break;
    const std::span<const TokenId> tokens = tree_->tokens(child);
    const size_t skipped = std::min(tokens.size(), wanted_count - followed);
    followed += skipped;
    for (const TokenId token : tokens.subspan(skipped)) {
      if (count < out.size()) out[count++] = token;
    }
    parent = child;
  }
  return count;
}

std::optional<SequenceId> PagedKvCache::Open(const BlockHash& root, std::span<const TokenId> prompt,
                                             uint32_t) {
  const std::optional<SequenceId> id = TakeSlot();
  if (!id.has_value()) return std::nullopt;
  Sequence& sequence = At(*id);
  const uint32_t token_count = FindPrefix(root, prompt, LastButOne(prompt));
  sequence.root = tree_->AcquireRoot(root);
  const uint32_t full_blocks = token_count / layout().block_tokens;
  sequence.tail = full_blocks == 0 ? sequence.root : path_[full_blocks - 1];
  sequence.computed = token_count;
  sequence.begun_with = token_count;
  sequence.prompt_blocks = static_cast<uint32_t>(prompt.size()) / layout().block_tokens;
  for (const NodeId node : path_) tree_->NoteUse(node);
  const std::span<const TokenId> tail =
      prompt.first(token_count).subspan(size_t{full_blocks} * layout().block_tokens);
  sequence.tail_tokens.assign(tail.begin(), tail.end());
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    BlockTable& table = sequence.tables[group];
    const uint32_t first = FirstNeeded(group, token_count);
    for (uint32_t i = 0; i < path_.size(); ++i) {
      if (i < first) {
        table.AppendAbsent();
        continue;
      }
      const BlockId block = tree_->block(path_[i], group);
      PinBlock(group, block);
      table.Append(block, groups_[group]->arena.address(block));
    }
  }
  tails().Begin(*id, token_count);
  ++counters_.queries;
  counters_.query_tokens += prompt.size();
  if (token_count > 0) ++counters_.hits;
  counters_.hit_tokens += token_count;
  return id;
}

// The tail block is full: its node becomes the new tail.
void PagedKvCache::PublishFull(Sequence& sequence) {
  const std::span<const TokenId> tokens = sequence.tail_tokens;
  KV_CHECK_EQ(tokens.size(), layout().block_tokens);
  const uint32_t index = TailBlock(sequence);
  const BlockHash name = ChildHash(tree_->hash(sequence.tail), tokens);
  const NodeId parent = sequence.tail;
  if (const auto twin = tree_->FindChild(parent, name, tokens)) {
    // Computed twice. The bytes are equal, so the sequence goes on with the first one and its own
    // is free again; its path then stays in the tree as long as it runs.
    ++counters_.duplicate_nodes;
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      ShareBlock(sequence, group, index, *twin);
    }
    sequence.tail = *twin;
    tree_->NoteUse(*twin);
    return;
  }
  sequence.tail = InsertTail(sequence, index, name);
  ++counters_.published_nodes;
  EraseSuperseded(parent, tokens);
}

// Partial leaves that the new child of `parent` begins with serve nobody any more.
void PagedKvCache::EraseSuperseded(NodeId parent, std::span<const TokenId> tokens) {
  while (const auto shorter = tree_->FindIdlePartialPrefix(parent, tokens)) EraseNode(*shorter);
}

// A node of the tail block and tokens, owned by the tree too.
NodeId PagedKvCache::InsertTail(const Sequence& sequence, uint32_t index, const BlockHash& name) {
  std::array<BlockId, kMaxKvGroups> blocks{};
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    blocks[group] = sequence.tables[group].id(index);
    KV_CHECK_NE(blocks[group], kNoBlock);
    groups_[group]->pool.Pin(blocks[group]);
  }
  return tree_->Insert(sequence.tail, name, sequence.tail_tokens,
                       std::span<const BlockId>(blocks).first(groups_.size()));
}

// Puts the node's block in place of the sequence's own twin of it, or gives the node that one where
// its own was evicted.
void PagedKvCache::ShareBlock(Sequence& sequence, uint32_t group, uint32_t index, NodeId node) {
  BlockTable& table = sequence.tables[group];
  const BlockId own = table.id(index);
  const BlockId theirs = tree_->block(node, group);
  KV_CHECK_NE(own, kNoBlock);
  KV_CHECK_NE(own, theirs);
  if (theirs == kNoBlock) {
    groups_[group]->pool.Pin(own);
    tree_->AttachBlock(node, group, own);
    return;
  }
  PinBlock(group, theirs);
  UnpinBlock(group, table.Replace(index, theirs, groups_[group]->arena.address(theirs)));
}

// Keeps the partial block of a sequence that ends as a leaf, unless what is cached begins with it.
void PagedKvCache::PublishPartial(Sequence& sequence) {
  const std::span<const TokenId> tokens = sequence.tail_tokens;
  const uint32_t index = TailBlock(sequence);
  if (const NodeId node = tree_->owner(0, sequence.tables[0].id(index)); node != kNoNode) {
    // Adopted from the tree and never written to, or published by a fork of this sequence; that one
    // may have gone back a few tokens before it ended.
    const bool pinned = pins_of_[0][Index(tree_->block(node, 0))] > 0;
    if (pinned || tree_->tokens(node).size() >= tokens.size()) return;
    EraseNode(node);
  }
  const auto cached = tree_->LongestPartialMatch(sequence.tail, tokens);
  if (cached.has_value() && cached->token_count == tokens.size()) return;
  const BlockHash name = ChildHash(tree_->hash(sequence.tail), tokens);
  if (tree_->FindChild(sequence.tail, name, tokens).has_value()) return;
  InsertTail(sequence, index, name);
  EraseSuperseded(sequence.tail, tokens);
}

// Tells the eviction policy what the sequence's request wanted: all of its path.
void PagedKvCache::ReportRequest(const Sequence& sequence) {
  if (!tree_->policy().wants_requests() || sequence.prompt_blocks == 0) return;
  request_.clear();
  for (NodeId node = sequence.tail; node != sequence.root; node = tree_->parent(node)) {
    request_.push_back(tree_->policy_block(node));
  }
  std::reverse(request_.begin(), request_.end());
  tree_->policy().Requested(request_, sequence.prompt_blocks);
}

void PagedKvCache::CheckSequence(const Sequence& sequence) const {
  KV_CHECK_EQ(sequence.tail_tokens.size() % layout().block_tokens,
              sequence.computed % layout().block_tokens);
  KV_CHECK_LT(sequence.tail_tokens.size(), layout().block_tokens + (layout().staged() ? 1 : 0));
  KV_CHECK_LE(sequence.begun_with, sequence.computed);
  KV_CHECK_LE(sequence.computed + sequence.reserved, max_sequence_tokens());
  const uint32_t full_blocks = TailBlock(sequence);
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const BlockTable& table = sequence.tables[group];
    table.CheckInvariants();
    KV_CHECK_GE(table.size(), BlocksFor(sequence.computed + sequence.reserved));
    KV_CHECK_EQ(table.size(), sequence.tables[0].size());
    KV_CHECK_LE(table.first_held(), FirstNeeded(group, sequence.computed));
    for (uint32_t i = table.first_held(); i < table.size(); ++i) {
      KV_CHECK_EQ(table.addresses()[i], groups_[group]->arena.address(table.id(i)));
      // Slots that may be written now have one owner.
      const bool writable = sequence.reserved > 0 && i >= full_blocks;
      KV_CHECK(!writable || groups_[group]->pool.pins(table.id(i)) == 1);
    }
    NodeId node = sequence.tail;
    for (uint32_t i = full_blocks; i-- > 0; node = tree_->parent(node)) {
      KV_CHECK(tree_->is_full(node));
      if (i >= table.first_held()) KV_CHECK_EQ(tree_->block(node, group), table.id(i));
    }
    KV_CHECK_EQ(node, sequence.root);
  }
}

void PagedKvCache::CheckInvariants() const {
  tree_->CheckInvariants();
  uint32_t open = 0;
  for (const auto& sequence : sequences_) {
    if (!sequence->open) continue;
    ++open;
    CheckSequence(*sequence);
  }
  KV_CHECK_EQ(open, open_sequences());
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const BlockPool& pool = groups_[group]->pool;
    pool.CheckInvariants();
    std::vector<uint32_t> pins(pool.block_count(), 0);
    for (const auto& sequence : sequences_) {
      const BlockTable& table = sequence->tables[group];
      KV_CHECK(sequence->open || table.size() == 0);
      for (const BlockId id : table.ids().subspan(table.first_held())) ++pins[Index(id)];
    }
    CountPins(group, pins);
    for (uint32_t i = 0; i < pool.block_count(); ++i) {
      const NodeId node = tree_->owner(group, BlockId{i});
      if (node != kNoNode) {
        KV_CHECK(tree_->idle(node, group) == (pins[i] == 0));
        ++pins[i];
      }
      KV_CHECK_EQ(pins[i], pool.pins(BlockId{i}));
    }
  }
}

}  // namespace kvasir
