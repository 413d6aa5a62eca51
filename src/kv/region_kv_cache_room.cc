// RegionKvCache, where regions come from: eviction, growth, moves and compaction.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kv/region_kv_cache.h"

namespace kvasir {

// A region, or blocks that belong to none any more, and where it is to be moved: into the free
// blocks beside it.
struct RegionKvCache::Slide {
  Region unit;
  uint32_t to = 0;
};

// References. A block is free exactly when no table has it.

void RegionKvCache::AddRef(Entry& entry, BlockId id) {
  const uint32_t block = Index(id);
  for (size_t group = 0; group < arenas_.size(); ++group) {
    entry.tables[group].Append(id, arenas_[group].address(id));
  }
  const uint32_t before = refs_[block].fetch_add(1, std::memory_order_relaxed);
  if (before > 0 && busy_[block] == 0) --idle_;
  ++busy_[block];
}

void RegionKvCache::Append(Entry& entry, Region region) {
  for (uint32_t i = region.first; i < region.end(); ++i) AddRef(entry, BlockId{i});
}

// Lets go of the table's last blocks. REQUIRES: the entry is active.
void RegionKvCache::Shrink(Entry& entry, uint32_t blocks) {
  Region run;  // Freed blocks that touch are given back at once.
  while (entry.blocks() > blocks) {
    uint32_t block = 0;
    for (BlockTable& table : entry.tables) block = Index(table.RemoveLast());
    --busy_[block];
    if (refs_[block].fetch_sub(1, std::memory_order_acq_rel) > 1) {
      if (busy_[block] == 0) ++idle_;
      continue;
    }
    if (run.count > 0 && block + 1 == run.first) {
      run = {block, run.count + 1};
    } else {
      pool_.Free(run);
      run = {block, 1};
    }
  }
  pool_.Free(run);
  entry.borrowed = std::min(entry.borrowed, entry.blocks());
}

void RegionKvCache::Activate(Entry& entry) {
  KV_CHECK(entry.state == State::kKept);
  entry.state = State::kRunning;
  ++entry.uses;
  for (const BlockId id : entry.tables[0].ids()) {
    if (busy_[Index(id)]++ == 0) --idle_;
  }
}

void RegionKvCache::Deactivate(Entry& entry) {
  KV_CHECK(entry.state == State::kRunning);
  entry.state = State::kKept;
  entry.last_use = ++clock_;
  entry.used_at = now_;
  entry.name = ChildHash(entry.root, entry.tokens);
  entry.computed = entry.begun_with = entry.wanted = 0;
  for (const BlockId id : entry.tables[0].ids()) {
    if (--busy_[Index(id)] == 0) ++idle_;
  }
}

void RegionKvCache::Drop(Entry& entry) {
  if (entry.state == State::kKept) Activate(entry);
  Shrink(entry, 0);
  entry.state = State::kEmpty;
  entry.tokens.clear();
  entry.computed = entry.begun_with = entry.wanted = 0;
}

void RegionKvCache::CopyBlock(const Entry& from, const Entry& to, uint32_t index) {
  for (size_t group = 0; group < arenas_.size(); ++group) {
    std::memcpy(to.tables[group].addresses()[index], from.tables[group].addresses()[index],
                arenas_[group].block_bytes());
    ++counters_.copies;
  }
}

// Eviction.

bool RegionKvCache::EvictOldest() {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.state != State::kKept) continue;
    if (oldest == nullptr || entry.last_use < oldest->last_use) oldest = &entry;
  }
  if (oldest == nullptr) return false;
  const uint32_t before = pool_.free_count();
  Drop(*oldest);
  for (size_t group = 0; group < arenas_.size(); ++group) {
    counters_.evictions[group] += pool_.free_count() - before;
  }
  return true;
}

// Nothing is evicted when that would not be enough.
bool RegionKvCache::EvictUntilFree(uint32_t blocks) {
  if (uint64_t{pool_.free_count()} + idle_ < blocks) return false;
  while (pool_.free_count() < blocks) KV_CHECK(EvictOldest());
  return true;
}

RegionKvCache::Entry* RegionKvCache::EmptyEntry() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (Entry& entry : entries_) {
      if (entry.state == State::kEmpty) return &entry;
    }
    if (!EvictOldest()) return nullptr;
  }
  return nullptr;
}

// Regions.

RegionKvCache::Entry* RegionKvCache::NewEntry(uint32_t blocks, const Entry* donor,
                                              uint32_t borrowed) {
  const uint32_t own = blocks - borrowed;
  KV_CHECK_LE(borrowed, blocks);
  Entry* const entry = EmptyEntry();
  if (entry == nullptr) return nullptr;
  entry->state = State::kRunning;
  entry->uses = 1;
  // They are in use from now on: making room does not take them.
  for (uint32_t i = 0; i < borrowed; ++i) AddRef(*entry, donor->tables[0].id(i));
  entry->borrowed = borrowed;
  std::optional<Region> region;
  if (own == 0) return entry;
  if (EvictUntilFree(own)) {
    region = pool_.Allocate(own);
    if (!region.has_value() && Compact(nullptr, own)) region = pool_.Allocate(own);
  }
  if (!region.has_value()) {
    Drop(*entry);
    return nullptr;
  }
  Append(*entry, *region);
  return entry;
}

bool RegionKvCache::ExtendInPlace(Entry& entry, uint32_t more) {
  const Region own = entry.own();
  const Region added{own.end(), more};
  if (own.count == 0 || uint64_t{own.end()} + more > pool_.block_count()) return false;
  if (!pool_.TakeAt(added)) return false;
  Append(entry, added);
  return true;
}

bool RegionKvCache::MoveToFit(Entry& entry, uint32_t blocks) {
  const std::optional<Region> region = pool_.Allocate(blocks - entry.borrowed);
  if (!region.has_value()) return false;
  const Region old = entry.own();
  if (old.count > 0) {
    Relocate(old, region->first);
    pool_.Free(old);
  }
  Append(entry, {region->first + old.count, region->count - old.count});
  return true;
}

bool RegionKvCache::Grow(Entry& entry, uint32_t blocks, bool compact) {
  if (blocks <= entry.blocks()) return true;
  const uint32_t more = blocks - entry.blocks();
  if (ExtendInPlace(entry, more) || MoveToFit(entry, blocks)) return true;
  if (!EvictUntilFree(more)) return false;
  if (ExtendInPlace(entry, more) || MoveToFit(entry, blocks)) return true;
  if (!compact) return false;
  if (entry.own_count() == 0) return Compact(nullptr, more) && MoveToFit(entry, blocks);
  return Compact(&entry, more) && ExtendInPlace(entry, more);
}

// Moves.

// Blocks of a unit that hold anything, or soon will: what is beyond needs no copy.
uint32_t RegionKvCache::FilledBlocks(Region from) const {
  for (const Entry& entry : entries_) {
    if (entry.own_count() == 0 || entry.own().first != from.first) continue;
    const uint32_t tokens =
        std::max(static_cast<uint32_t>(entry.tokens.size()), entry.computed + entry.reserved);
    return std::min(from.count, BlocksFor(tokens) - std::min(entry.borrowed, BlocksFor(tokens)));
  }
  return from.count;
}

// Moves blocks with everything that points to them; returns the bytes copied. The two may overlap.
// REQUIRES: the destination is taken, and no table has it.
uint64_t RegionKvCache::Relocate(Region from, uint32_t to) {
  const uint32_t filled = FilledBlocks(from);
  uint64_t bytes = 0;
  for (const BlockArena& arena : arenas_) {
    std::memmove(arena.address(BlockId{to}), arena.address(BlockId{from.first}),
                 filled * arena.block_bytes());
    bytes += filled * arena.block_bytes();
    counters_.moves += filled;
  }
  counters_.moved_bytes += bytes;
  for (uint32_t i = 0; i < from.count; ++i) {
    const uint32_t k = to < from.first ? i : from.count - 1 - i;  // What overlaps is read first.
    refs_[to + k].store(refs_[from.first + k].exchange(0, std::memory_order_relaxed),
                        std::memory_order_relaxed);
    busy_[to + k] = std::exchange(busy_[from.first + k], 0);
  }
  for (Entry& entry : entries_) {
    for (uint32_t i = 0; i < entry.blocks(); ++i) {
      const uint32_t block = Index(entry.tables[0].id(i));
      if (block < from.first || block >= from.end()) continue;
      const BlockId moved{to + (block - from.first)};
      for (size_t group = 0; group < arenas_.size(); ++group) {
        entry.tables[group].Replace(i, moved, arenas_[group].address(moved));
      }
    }
  }
  return bytes;
}

// The region that begins at (`last`: ends with) this taken block; where it belongs to none, the
// blocks from there to the next (previous) region or free run.
Region RegionKvCache::UnitAt(uint32_t block, bool last) const {
  uint32_t first = last ? 0 : block;
  uint32_t end = last ? block + 1 : pool_.block_count();
  const auto bound = [&](const Region& region) {
    if (last && region.end() <= block) first = std::max(first, region.end());
    if (!last && region.first > block) end = std::min(end, region.first);
  };
  for (const Entry& entry : entries_) {
    if (entry.own_count() == 0) continue;
    const Region own = entry.own();
    if (last ? own.end() == block + 1 : own.first == block) return own;
    bound(own);
  }
  for (const Region& run : pool_.runs()) bound(run);
  return {first, end - first};
}

bool RegionKvCache::HasRoom(const Entry* anchor, uint32_t blocks) const {
  if (anchor == nullptr) return pool_.largest_run() >= blocks;
  const uint32_t end = anchor->own().end();
  for (const Region& run : pool_.runs()) {
    if (run.first == end) return run.count >= blocks;
  }
  return false;
}

// Of all neighbouring free runs that are large enough together those with the fewest taken blocks
// between them; what lies behind the first of them is moved into it.
RegionKvCache::Slide RegionKvCache::BestSlide(uint32_t blocks) const {
  const std::span<const Region> runs = pool_.runs();
  size_t best = runs.size();
  uint32_t best_between = 0;
  uint64_t free = 0;
  for (size_t first = 0, end = 0; first < runs.size(); ++first) {
    while (end < runs.size() && free < blocks) free += runs[end++].count;
    if (free < blocks) break;
    const uint32_t between = runs[end - 1].end() - runs[first].first - static_cast<uint32_t>(free);
    if (best == runs.size() || between < best_between) {
      best = first;
      best_between = between;
    }
    free -= runs[first].count;
  }
  KV_CHECK_LT(best, runs.size());
  return {UnitAt(runs[best].end(), /*last=*/false), runs[best].first};
}

// The same for room right behind a region: what lies left of it, and it itself, move left, what
// lies right of it moves right.
RegionKvCache::Slide RegionKvCache::BestSlideAround(const Region& anchor, uint32_t blocks) const {
  const std::span<const Region> runs = pool_.runs();
  const size_t split = static_cast<size_t>(
      std::find_if(runs.begin(), runs.end(),
                   [&](const Region& run) { return run.first >= anchor.end(); }) -
      runs.begin());
  // By how many runs right of the anchor: the fewest left of it that make up the rest.
  size_t best_left = runs.size(), best_right = runs.size();
  uint32_t best_between = UINT32_MAX;
  uint64_t left_free = 0, right_free = 0;
  size_t left = split;  // First run used.
  while (left > 0 && left_free < blocks) left_free += runs[--left].count;
  for (size_t right = split;; ++right) {  // End of the runs used.
    if (right > split) right_free += runs[right - 1].count;
    while (left < split && left_free - runs[left].count + right_free >= blocks) {
      left_free -= runs[left++].count;
    }
    if (left_free + right_free >= blocks) {
      const uint32_t begin = left < split ? runs[left].first : anchor.end();
      const uint32_t end = right > split ? runs[right - 1].end() : anchor.end();
      const uint32_t between = end - begin - static_cast<uint32_t>(left_free + right_free);
      if (between < best_between) {
        best_between = between;
        best_left = left;
        best_right = right;
      }
    }
    if (right == runs.size()) break;
  }
  KV_CHECK_LT(best_between, UINT32_MAX);
  if (best_left < split) {
    return {UnitAt(runs[best_left].end(), /*last=*/false), runs[best_left].first};
  }
  const Region& run = runs[best_right - 1];
  const Region unit = UnitAt(run.first - 1, /*last=*/true);
  return {unit, run.end() - unit.count};
}

// Moves regions together until there is a free run of so many blocks, behind `anchor` if it is
// given. False when the bound of one call ended it before. REQUIRES: so many blocks are free.
bool RegionKvCache::Compact(const Entry* anchor, uint32_t blocks) {
  KV_CHECK_GE(pool_.free_count(), blocks);
  const bool alone = running_ <= 1;  // Nobody's step is held up.
  uint64_t moved = 0;
  while (!HasRoom(anchor, blocks)) {
    if (moved >= kMaxCompactionBytes && !alone) return false;
    const Slide slide =
        anchor == nullptr ? BestSlide(blocks) : BestSlideAround(anchor->own(), blocks);
    const bool to_left = slide.to < slide.unit.first;
    const uint32_t distance = to_left ? slide.unit.first - slide.to : slide.to - slide.unit.first;
    KV_CHECK_GT(distance, 0u);
    const Region gap{to_left ? slide.to : slide.unit.end(), distance};
    KV_CHECK(pool_.TakeAt(gap));
    moved += Relocate(slide.unit, slide.to);
    pool_.Free({to_left ? slide.to + slide.unit.count : slide.unit.first, distance});
  }
  return true;
}

}  // namespace kvasir
