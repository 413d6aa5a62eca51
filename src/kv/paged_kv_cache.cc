#include "kv/paged_kv_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kv/paged_kv_cache_sequence.h"

namespace kvasir {
namespace {

StatusOr<std::vector<uint32_t>> BlockCounts(const PagedKvCache::Options& options) {
  const KvLayout& layout = options.layout;
  std::vector<uint32_t> counts = options.block_counts;
  if (counts.empty()) {
    const uint64_t set_bytes = uint64_t{layout.bytes_per_token()} * layout.block_tokens;
    const uint64_t count = std::min(options.memory_bytes / set_bytes, kMaxKvBlocks);
    if (count == 0) {
      return InvalidArgument(
          "KV memory of {} bytes cannot hold one block of {} tokens; it needs {} bytes at least",
          options.memory_bytes, layout.block_tokens, set_bytes);
    }
    counts.assign(layout.group_count(), static_cast<uint32_t>(count));
  }
  if (counts.size() != layout.groups.size()) {
    return InvalidArgument("KV block counts for {} groups, but the layout has {}", counts.size(),
                           layout.groups.size());
  }
  for (const uint32_t count : counts) {
    if (count == 0 || count > kMaxKvBlocks) {
      return InvalidArgument("{} KV blocks in a group; 1 to {} are possible", count, kMaxKvBlocks);
    }
  }
  return counts;
}

PrefixTree::Options TreeOptions(const PagedKvCache::Options& options,
                                const std::vector<uint32_t>& counts) {
  PrefixTree::Options tree;
  tree.block_tokens = options.layout.block_tokens;
  tree.block_counts = counts;
  tree.max_root_users = options.max_sequences;
  tree.evict = options.evict;
  tree.max_path = options.max_sequence_tokens / options.layout.block_tokens + 1;
  return tree;
}

}  // namespace

StatusOr<std::unique_ptr<KvCache>> PagedKvCache::Create(const Options& options) {
  KV_ASSIGN_OR_RETURN(const std::vector<uint32_t> counts, BlockCounts(options));
  std::vector<std::unique_ptr<Group>> groups;
  for (uint32_t group = 0; group < counts.size(); ++group) {
    KV_ASSIGN_OR_RETURN(BlockArena arena,
                        BlockArena::Create(counts[group], options.layout.block_bytes(group)));
    groups.push_back(std::make_unique<Group>(
        Group{std::move(arena), BlockPool(counts[group]), options.layout.groups[group].window}));
  }
  auto tree = std::make_unique<PrefixTree>(TreeOptions(options, counts));
  return std::unique_ptr<KvCache>(new PagedKvCache(options, std::move(groups), std::move(tree)));
}

PagedKvCache::PagedKvCache(const Options& options, std::vector<std::unique_ptr<Group>> groups,
                           std::unique_ptr<PrefixTree> tree)
    : KvCache(options), evict_(options.evict), groups_(std::move(groups)), tree_(std::move(tree)) {
  const uint32_t capacity = BlocksFor(max_sequence_tokens());
  path_.reserve(size_t{capacity} + 1);
  request_.reserve(size_t{capacity} + 1);
  pins_.reserve(kMostPins);
  pin_shares_.reserve(size_t{kMostPins} + 1);
  for (const auto& group : groups_) pins_of_.emplace_back(group->pool.block_count(), 0);
  for (uint32_t i = options.max_sequences; i > 0; --i) free_slots_.push_back(i - 1);
  for (uint32_t i = 0; i < options.max_sequences; ++i) {
    auto sequence = std::make_unique<Sequence>();
    for (size_t group = 0; group < groups_.size(); ++group) {
      sequence->tables.emplace_back(capacity);
    }
    sequence->tail_tokens.reserve(layout().block_tokens);
    sequences_.push_back(std::move(sequence));
  }
}

PagedKvCache::~PagedKvCache() = default;

PagedKvCache::Sequence& PagedKvCache::At(SequenceId id) {
  return const_cast<Sequence&>(static_cast<const PagedKvCache*>(this)->At(id));
}

const PagedKvCache::Sequence& PagedKvCache::At(SequenceId id) const {
  KV_CHECK_LT(Index(id), sequences_.size());
  const Sequence& sequence = *sequences_[Index(id)];
  KV_CHECK(sequence.open);
  return sequence;
}

uint32_t PagedKvCache::computed(SequenceId id) const { return At(id).computed; }
uint32_t PagedKvCache::reserved(SequenceId id) const { return At(id).reserved; }

const BlockTable& PagedKvCache::table(SequenceId id, uint32_t group) const {
  KV_CHECK_LT(group, groups_.size());
  return At(id).tables[group];
}

uint32_t PagedKvCache::truncate_floor(SequenceId id) const {
  const Sequence& sequence = At(id);
  return std::max(TruncateFloor(sequence), tails().quantized(id, 0));
}

uint32_t PagedKvCache::TruncateFloor(const Sequence& sequence) const {
  return std::max(sequence.computed / layout().block_tokens * layout().block_tokens,
                  sequence.begun_with);
}

uint32_t PagedKvCache::TailBlock(const Sequence& sequence) const {
  return (sequence.computed - static_cast<uint32_t>(sequence.tail_tokens.size())) /
         layout().block_tokens;
}

uint32_t PagedKvCache::open_sequences() const {
  return static_cast<uint32_t>(sequences_.size() - free_slots_.size());
}

bool PagedKvCache::FitsTogether(std::span<const KvDemand> demands, uint32_t step_tokens) const {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const uint32_t window = groups_[group]->window;
    uint64_t wanted = 0;
    for (const KvDemand& demand : demands) {
      uint64_t tokens = demand.tokens;
      if (window > 0) tokens = std::min<uint64_t>(tokens, uint64_t{window} + step_tokens);
      // One more block each: for the next one to grow into, or the copy of a shared one.
      const uint64_t blocks = BlocksFor(static_cast<uint32_t>(tokens)) + 1;
      const uint64_t held = table(demand.id, group).held_count();
      wanted += blocks > held ? blocks - held : 0;
    }
    if (wanted > available_blocks(group)) return false;
  }
  return true;
}

// Slots of the sequence's blocks that hold no token and that the tree does not know of. A partial
// block that forks share counts for each of them in part.
double PagedKvCache::EmptySlots(const Sequence& sequence, uint32_t group) const {
  const BlockTable& table = sequence.tables[group];
  const uint32_t full_blocks = sequence.computed / layout().block_tokens;
  double empty = 0;
  for (uint32_t i = std::max(full_blocks, table.first_held()); i < table.size(); ++i) {
    if (tree_->owner(group, table.id(i)) != kNoNode) continue;
    const uint32_t filled = i == full_blocks ? sequence.computed % layout().block_tokens : 0;
    empty += static_cast<double>(layout().block_tokens - filled) /
             groups_[group]->pool.pins(table.id(i));
  }
  return empty;
}

KvUsage PagedKvCache::usage() const {
  KvUsage usage;
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const uint64_t block_bytes = layout().block_bytes(group);
    double empty = static_cast<double>(tree_->empty_slots(group));
    for (const auto& sequence : sequences_) {
      if (sequence->open) empty += EmptySlots(*sequence, group);
    }
    const uint64_t reserved = (block_count(group) - free_blocks(group)) * block_bytes;
    const double empty_bytes = empty * static_cast<double>(block_bytes) / layout().block_tokens;
    usage.total += block_count(group) * block_bytes;
    usage.reserved += reserved;
    usage.used += reserved - static_cast<uint64_t>(std::llround(empty_bytes));
    usage.idle += idle_blocks(group) * block_bytes;
    usage.pinned += pinned_blocks_[group] * block_bytes;
    usage.largest_free += free_blocks(group) * block_bytes;  // Any blocks will do.
  }
  return usage;
}

// One block more than the tokens fill: a hit inside a shared block needs a copy of it.
uint32_t PagedKvCache::most_tokens_alone() const {
  const uint64_t tokens = (uint64_t{block_count(0)} - 1) * layout().block_tokens;
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, max_sequence_tokens()));
}

// Owners. Every pin and unpin of a sequence goes through these two, which keep the tree informed of
// the blocks that nobody else uses.

void PagedKvCache::PinBlock(uint32_t group, BlockId id) {
  BlockPool& pool = groups_[group]->pool;
  const NodeId node = tree_->owner(group, id);
  if (node != kNoNode && pool.pins(id) == 1) tree_->MarkBusy(node, group);
  pool.Pin(id);
}

void PagedKvCache::UnpinBlock(uint32_t group, BlockId id) {
  BlockPool& pool = groups_[group]->pool;
  pool.Unpin(id);
  const NodeId node = tree_->owner(group, id);
  if (node != kNoNode && pool.pins(id) == 1) tree_->MarkIdle(node, group, ++clock_);
}

void PagedKvCache::EraseNode(NodeId node) {
  std::array<BlockId, kMaxKvGroups> blocks{};
  for (uint32_t group = 0; group < groups_.size(); ++group)
    blocks[group] = tree_->block(node, group);
  tree_->Erase(node);
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    if (blocks[group] != kNoBlock) groups_[group]->pool.Unpin(blocks[group]);
  }
}

void PagedKvCache::TakeFromTree(uint32_t group, NodeId node) {
  if (group == 0) {
    EraseNode(node);
    return;
  }
  const BlockId block = tree_->block(node, group);
  tree_->DetachBlock(node, group);
  groups_[group]->pool.Unpin(block);
}

void PagedKvCache::EvictUntilFree(uint32_t group, uint32_t block_count) {
  BlockPool& pool = groups_[group]->pool;
  while (pool.free_count() < block_count) {
    const std::optional<NodeId> victim = tree_->Victim(group);
    KV_CHECK(victim.has_value());  // The caller made sure that eviction can free enough.
    if (group == 0) {
      ++evictions_[static_cast<size_t>(eviction().ruling)];
      tree_->NoteEviction(*victim);
    }
    for (uint32_t g = group; g < (group == 0 ? groups_.size() : group + 1); ++g) {
      if (tree_->block(*victim, g) != kNoBlock) ++counters_.evictions[g];
    }
    TakeFromTree(group, *victim);
  }
}

uint32_t PagedKvCache::EvictAll() {
  uint32_t erased = 0;
  while (const std::optional<NodeId> victim = tree_->Victim(0)) {
    EraseNode(*victim);
    ++erased;
  }
  for (uint32_t group = 1; group < groups_.size(); ++group) {
    while (const std::optional<NodeId> victim = tree_->Victim(group)) TakeFromTree(group, *victim);
  }
  return erased;
}

// One step of a sequence.

bool PagedKvCache::NeedsCopy(const Sequence& sequence, uint32_t group) const {
  if (sequence.tail_tokens.empty()) return false;
  const BlockId tail = sequence.tables[group].id(TailBlock(sequence));
  return groups_[group]->pool.pins(tail) > 1;
}

// Whether the partial block is a cached leaf that this sequence began with, as a whole, and that
// nobody else has: it may go on writing there if the tree forgets the leaf. Nothing is lost by that
// for long. Truncate cannot go back behind the leaf, so that what takes its place, when the block
// is full or the sequence closed, begins with it.
bool PagedKvCache::TakesLeafOver(const Sequence& sequence) const {
  if (sequence.tail_tokens.empty()) return false;
  const BlockId tail = sequence.tables[0].id(TailBlock(sequence));
  const NodeId node = tree_->owner(0, tail);
  return node != kNoNode && groups_[0]->pool.pins(tail) == 2 && !tree_->is_full(node) &&
         tree_->depth(node) + tree_->tokens(node).size() <= sequence.begun_with;
}

// What a reservation takes from one group. False when the group cannot give it.
bool PagedKvCache::PlanDemand(const Sequence& sequence, uint32_t token_count, uint32_t group,
                              Demand* demand) const {
  const BlockTable& table = sequence.tables[group];
  const uint32_t blocks = BlocksFor(sequence.computed + token_count);
  demand->fresh = blocks > table.size() ? blocks - table.size() : 0;
  demand->take = TakesLeafOver(sequence);
  demand->copy = !demand->take && NeedsCopy(sequence, group);
  const uint32_t available = available_blocks(group);
  if (demand->fresh + (demand->copy ? 1 : 0) <= available) return true;
  if (!demand->copy || demand->fresh > available) return false;
  // One short, for the copy: if the tree is the only other owner it gives the block up, so that a
  // sequence that fits alone never waits for itself. All that is idle goes first, hence the node
  // has no children by then.
  const BlockId tail = table.id(TailBlock(sequence));
  if (tree_->owner(group, tail) == kNoNode || groups_[group]->pool.pins(tail) != 2) return false;
  demand->copy = false;
  demand->take = true;
  return true;
}

bool PagedKvCache::PlanDemands(const Sequence& sequence, uint32_t token_count,
                               std::span<Demand> demands) const {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    if (!PlanDemand(sequence, token_count, group, &demands[group])) return false;
  }
  return true;
}

// Whether it would fit with nothing else there.
bool PagedKvCache::FitsAlone(const Sequence& sequence, uint32_t token_count) const {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const uint32_t first = sequence.tables[group].first_held();
    if (BlocksFor(sequence.computed + token_count) - first > block_count(group)) return false;
  }
  return true;
}

bool PagedKvCache::Reserve(SequenceId id, uint32_t token_count) {
  Sequence& sequence = At(id);
  KV_CHECK_LE(token_count, max_sequence_tokens() - sequence.computed);
  sequence.reserved = 0;
  if (token_count == 0) return true;
  std::array<Demand, kMaxKvGroups> demands{};
  while (!PlanDemands(sequence, token_count, demands)) {
    if (open_sequences() == 1 && FitsAlone(sequence, token_count) && BreakPin()) continue;
    ++counters_.failed_reserves;
    return false;
  }
  const uint32_t tail = TailBlock(sequence);
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const Demand& demand = demands[group];
    BlockTable& table = sequence.tables[group];
    EvictUntilFree(group, demand.fresh + (demand.copy ? 1 : 0));
    if (demand.take) {
      // Taking the node for group 0 has freed its window blocks from the tree as well.
      const NodeId node = tree_->owner(group, table.id(tail));
      if (node != kNoNode) TakeFromTree(group, node);
      if (node != kNoNode && group == 0) ++counters_.taken_leaves;
    } else if (demand.copy && NeedsCopy(sequence, group)) {
      CopyShared(sequence, group, tail);
    }
    for (uint32_t i = 0; i < demand.fresh; ++i) {
      const std::optional<BlockId> block = groups_[group]->pool.Allocate();
      KV_CHECK(block.has_value());
      table.Append(*block, groups_[group]->arena.address(*block));
    }
    KV_CHECK(!NeedsCopy(sequence, group));
  }
  sequence.reserved = token_count;
  return true;
}

void PagedKvCache::CopyShared(Sequence& sequence, uint32_t group, uint32_t index) {
  BlockTable& table = sequence.tables[group];
  const BlockArena& arena = groups_[group]->arena;
  const std::optional<BlockId> copy = groups_[group]->pool.Allocate();
  KV_CHECK(copy.has_value());
  std::memcpy(arena.address(*copy), arena.address(table.id(index)), arena.block_bytes());
  UnpinBlock(group, table.Replace(index, *copy, arena.address(*copy)));
  ++counters_.copies;
}

void PagedKvCache::Commit(SequenceId id, std::span<const TokenId> tokens) {
  Sequence& sequence = At(id);
  KV_CHECK_LE(tokens.size(), sequence.reserved);
  sequence.reserved = 0;
  counters_.committed_tokens += tokens.size();
  const auto publish_if_full = [&] {
    if (sequence.tail_tokens.size() < layout().block_tokens) return;
    PublishFull(sequence);
    sequence.tail_tokens.clear();
  };
  for (const TokenId token : tokens) {
    if (layout().staged()) publish_if_full();  // The step that computed `token` has quantized it.
    sequence.tail_tokens.push_back(token);
    ++sequence.computed;
    if (!layout().staged()) publish_if_full();
  }
  if (!tokens.empty()) tails().Advance(id, sequence.computed);
  DropBeforeWindow(sequence);
}

void PagedKvCache::DropBeforeWindow(Sequence& sequence) {
  const uint32_t position = TruncateFloor(sequence);  // A later Truncate may go back that far.
  for (uint32_t group = 1; group < groups_.size(); ++group) {
    BlockTable& table = sequence.tables[group];
    const uint32_t first = std::min(FirstNeeded(group, position), table.size());
    while (table.first_held() < first) UnpinBlock(group, table.DropFirst());
  }
}

void PagedKvCache::Truncate(SequenceId id, uint32_t token_count) {
  Sequence& sequence = At(id);
  KV_CHECK_GE(token_count, truncate_floor(id));
  KV_CHECK_LE(token_count, sequence.computed);
  sequence.reserved = 0;
  sequence.tail_tokens.resize(sequence.tail_tokens.size() - (sequence.computed - token_count));
  sequence.computed = token_count;
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    BlockTable& table = sequence.tables[group];
    while (table.size() > BlocksFor(token_count)) UnpinBlock(group, table.RemoveLast());
  }
}

std::optional<SequenceId> PagedKvCache::TakeSlot() {
  if (free_slots_.empty()) return std::nullopt;
  const SequenceId id{free_slots_.back()};
  free_slots_.pop_back();
  Sequence& sequence = *sequences_[Index(id)];
  KV_CHECK(!sequence.open);
  sequence.open = true;
  return id;
}

std::optional<SequenceId> PagedKvCache::Fork(SequenceId id) {
  Sequence& source = At(id);
  const std::optional<SequenceId> fork = TakeSlot();
  if (!fork.has_value()) return std::nullopt;
  // The source loses its right to write in place: the partial block has two owners now.
  source.reserved = 0;
  Sequence& sequence = At(*fork);
  sequence.root = tree_->AcquireRoot(tree_->hash(source.root));
  sequence.tail = source.tail;
  sequence.computed = source.computed;
  sequence.begun_with = source.computed;
  sequence.tail_tokens.assign(source.tail_tokens.begin(), source.tail_tokens.end());
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const BlockTable& from = source.tables[group];
    for (uint32_t i = 0; i < BlocksFor(source.computed); ++i) {
      if (i < from.first_held()) {
        sequence.tables[group].AppendAbsent();
      } else {
        PinBlock(group, from.id(i));
        sequence.tables[group].Append(from.id(i), from.addresses()[i]);
      }
    }
  }
  tails().Fork(id, *fork);
  return fork;
}

void PagedKvCache::Close(SequenceId id) {
  Sequence& sequence = At(id);
  if (!sequence.tail_tokens.empty() && !layout().staged()) PublishPartial(sequence);
  tails().End(id);
  ReportRequest(sequence);
  // Window groups first: a node that is idle in group 0 is idle everywhere. The last block first:
  // of equally old ones the deepest is the least loss.
  for (uint32_t group = static_cast<uint32_t>(groups_.size()); group-- > 0;) {
    BlockTable& table = sequence.tables[group];
    while (table.held_count() > 0) UnpinBlock(group, table.RemoveLast());
    table.Clear();
  }
  tree_->ReleaseRoot(sequence.root);
  sequence.tail_tokens.clear();
  sequence.computed = 0;
  sequence.reserved = 0;
  sequence.begun_with = 0;
  sequence.prompt_blocks = 0;
  sequence.root = kNoNode;
  sequence.tail = kNoNode;
  sequence.open = false;
  free_slots_.push_back(Index(id));
}

}  // namespace kvasir
