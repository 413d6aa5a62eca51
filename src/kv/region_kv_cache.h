// RegionKvCache: what the strategies have in common that keep each sequence in one piece of memory,
// its region: `static`, `dynamic` and `shared` (static_kv_cache.h and so on say what each adds).
//
// Every group has the same number of blocks, and a region is the same blocks in each: block i of
// all groups is one unit of memory. So a window group keeps the whole length, as the full one does.
// A ring of the window and a step would be smaller, but a prompt that leaves a kept sequence before
// its last tokens could reuse nothing: the window before that place would be gone (docs/KV.md).
//
// An entry is a sequence with its region: running, or finished and kept. Open takes over the kept
// one with the longest common prefix; room is made by evicting kept ones, least recently used
// first, and then by moving regions together (compaction), at most kMaxCompactionBytes or one
// region in each call unless no other sequence runs. A kept one that is taken over keeps the tokens
// beyond the match until it is written to: an Open that is given up costs nothing.
//
// Invariant: refs(block) is the number of entries with the block in their tables, 0 if it is free.
//   The blocks that an entry has of its own are contiguous; those before them, if any, belong to
//   other regions, are full, and are never written (`shared` only).
#ifndef KVASIR_KV_REGION_KV_CACHE_H_
#define KVASIR_KV_REGION_KV_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv/block_arena.h"
#include "kv/kv_cache.h"
#include "kv/region_pool.h"

namespace kvasir {

class RegionKvCache : public KvCache {
 public:
  static constexpr uint64_t kMaxCompactionBytes = uint64_t{64} << 20;

  ~RegionKvCache() override;

  using KvCache::Open;
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
  void Close(SequenceId id) override;
  uint32_t EvictAll() override;
  void AdvanceTo(TimeUs now) override { now_ = now; }
  // An entry is a kept sequence as a whole. There are no pins: a region cannot be kept in part.
  KvPage ListCached(const BlockHash& root, KvCursor from,
                    std::span<KvCachedEntry> out) const override;
  uint32_t CachedTokens(const BlockHash& root, const BlockHash& hash,
                        std::span<TokenId> out) const override;
  KvCleared ClearCached(const BlockHash& root, KvCursor from, uint32_t most) override;
  uint32_t computed(SequenceId id) const override;
  uint32_t reserved(SequenceId id) const override;
  const BlockTable& table(SequenceId id, uint32_t group) const override;
  bool FitsTogether(std::span<const KvDemand> demands, uint32_t step_tokens) const override;
  uint32_t most_tokens_alone() const override;
  bool shares_running() const override { return false; }
  uint32_t open_sequences() const override { return running_; }
  uint32_t block_count(uint32_t) const override { return pool_.block_count(); }
  uint32_t free_blocks(uint32_t) const override { return pool_.free_count(); }
  uint32_t idle_blocks(uint32_t) const override { return idle_; }
  KvUsage usage() const override;
  const KvCounters& counters() const override { return counters_; }
  void CheckInvariants() const override;
  // Entries whose tables have this block. Thread: any, a value of the moment.
  uint32_t references(BlockId id) const { return refs_[Index(id)].load(std::memory_order_relaxed); }

 protected:
  enum class State : uint8_t { kEmpty, kRunning, kKept };

  struct Entry {
    State state = State::kEmpty;
    BlockHash root{};
    std::vector<TokenId> tokens;     // With KV: [computed], or more while nothing was written.
    uint32_t computed = 0;           // While running.
    uint32_t reserved = 0;           // Writable slots after them.
    uint32_t begun_with = 0;         // `computed` at Open or Fork.
    uint32_t borrowed = 0;           // Blocks at the table's begin that belong to other regions.
    uint32_t wanted = 0;             // Blocks to be kept of a region that was taken over.
    uint64_t last_use = 0;           // While kept, as the next two: the order,
    TimeUs used_at = 0;              // the time of it,
    BlockHash name{};                // and the hash of root and tokens.
    uint32_t uses = 0;               // Times that it was active.
    std::vector<BlockTable> tables;  // [group]; the whole region, the same ids in each.

    uint32_t blocks() const { return tables[0].size(); }
    uint32_t own_count() const { return blocks() - borrowed; }
    Region own() const {
      return {own_count() == 0 ? 0 : Index(tables[0].id(borrowed)), own_count()};
    }
  };
  struct Match {
    Entry* entry = nullptr;
    uint32_t tokens = 0;
  };

  // `blocks` of each group; `entries` sequences at most, running and kept ones.
  RegionKvCache(const Options& options, std::vector<BlockArena> arenas, uint32_t blocks,
                uint32_t entries);
  // Blocks of each group that the options give; kInvalidArgument when that is less than `least`.
  static StatusOr<uint32_t> BlocksOf(const Options& options, uint64_t least);
  static StatusOr<std::vector<BlockArena>> MapArenas(const Options& options, uint32_t blocks);

  // What differs between strategies.
  // Blocks of a region for a sequence of so many tokens, of at most `most_tokens` (0: unknown).
  virtual uint32_t WantedBlocks(uint32_t tokens, uint32_t most_tokens) const = 0;
  // Blocks that a region keeps when its sequence of so many tokens ends.
  virtual uint32_t KeptBlocks(uint32_t tokens) const { return BlocksFor(tokens); }
  // Whether a sequence that still runs may be matched.
  virtual bool MatchesRunning() const { return false; }
  // An active entry with a region of `wanted` blocks and the match's KV in it; nullptr when there
  // is no place now: nothing is lost then but what was evicted to make room.
  // May make do with less of the match.
  virtual Entry* Place(Match* match, uint32_t wanted);
  // The same for a second sequence with the first `computed` tokens of `source`.
  virtual Entry* PlaceFork(Entry& source);
  // A sequence ends and is about to be kept: entries that this makes useless may go. False: it is
  // useless itself.
  virtual bool WorthKeeping(const Entry&) { return true; }

  // Room. Only kept entries are ever given up for it.
  // A new active entry whose table has so many blocks, the first `borrowed` ones those of `donor`.
  Entry* NewEntry(uint32_t blocks, const Entry* donor, uint32_t borrowed);
  // Makes the region of an active entry at least so long; may move it.
  bool Grow(Entry& entry, uint32_t blocks, bool compact);
  // From kept to running and back: what is active is neither evicted nor counted as idle.
  void Activate(Entry& entry);
  void Deactivate(Entry& entry);
  void Drop(Entry& entry);
  void CopyBlock(const Entry& from, const Entry& to, uint32_t index);

  uint32_t CapacityBlocks() const { return BlocksFor(max_sequence_tokens()); }
  std::span<Entry> entries() { return entries_; }
  // Tokens of `entry` that others may find, and that it has KV of.
  std::span<const TokenId> Findable(const Entry& entry) const {
    return std::span(entry.tokens)
        .first(entry.state == State::kRunning ? FinalTokens(entry) : entry.tokens.size());
  }
  SequenceId IdOf(const Entry& entry) const {
    return SequenceId{static_cast<uint32_t>(&entry - entries_.data())};
  }
  // Tokens of a running entry whose KV does not change any more, as far as others can use it.
  uint32_t FinalTokens(const Entry& entry) const {
    return Reusable(tails().quantized(IdOf(entry), entry.computed));
  }
  uint32_t TruncateFloor(const Entry& entry) const;

 private:
  struct Slide;

  uint32_t id_limit() const override { return static_cast<uint32_t>(entries_.size()); }
  Entry& At(SequenceId id);
  const Entry& At(SequenceId id) const;
  Match FindMatch(const BlockHash& root, std::span<const TokenId> tokens) const;
  Entry* EmptyEntry();
  bool EvictOldest();
  bool EvictUntilFree(uint32_t blocks);
  bool ExtendInPlace(Entry& entry, uint32_t more);
  bool MoveToFit(Entry& entry, uint32_t blocks);
  bool Compact(const Entry* anchor, uint32_t blocks);
  bool HasRoom(const Entry* anchor, uint32_t blocks) const;
  Slide BestSlide(uint32_t blocks) const;
  Slide BestSlideAround(const Region& anchor, uint32_t blocks) const;
  Region UnitAt(uint32_t block, bool last) const;
  uint64_t Relocate(Region from, uint32_t to);
  uint32_t FilledBlocks(Region from) const;
  void Append(Entry& entry, Region region);
  void AddRef(Entry& entry, BlockId id);
  void Shrink(Entry& entry, uint32_t blocks);
  void CheckEntry(const Entry& entry) const;

  std::vector<BlockArena> arenas_;  // [group]
  RegionPool pool_;
  std::vector<std::atomic<uint32_t>> refs_;  // [block]: entries that hold it.
  std::vector<uint32_t> busy_;               // [block]: those of them that are active.
  uint32_t idle_ = 0;                        // Blocks with references, none of them active.
  std::vector<Entry> entries_;
  uint32_t max_running_;
  uint32_t running_ = 0;  // Open sequences, and the one that is being opened.
  uint64_t clock_ = 0;
  TimeUs now_ = 0;
  KvCounters counters_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_REGION_KV_CACHE_H_
