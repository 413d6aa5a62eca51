// KvCache: the KV of all running sequences and of every prefix worth keeping, in fixed memory.
//
// The one interface behind which the strategies of `--kv-strategy` lie (kv_strategy.h has their
// table, docs/STRATEGIES.md what each costs). A sequence has `computed` tokens; a step is Reserve
// (make slots writable), run the model (kernels write through table addresses), Commit (those
// tokens count now). Whatever the strategy, kernels find KV through block tables.
//
// Rules of every strategy:
//  - A block is written only while one sequence is its sole owner. Content that others can find is
//    immutable.
//  - Reuse is exact: Open gives KV that was computed for the very same tokens, or none.
//  - The memory is sized at Create and never grows.
// Addresses in a table may change at Reserve and Commit (a copy, a move, or a twin already cached),
// and in contiguous strategies at Open, Fork and Reserve of any sequence (moves that make room). So
// read the tables when all of a step is reserved, and forget them at its first Commit.
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
#include "kv/block_hash.h"
#include "kv/block_table.h"
#include "kv/kv_evict.h"
#include "kv/kv_layout.h"
#include "kv/kv_listing.h"
#include "kv/kv_strategy.h"
#include "kv/kv_usage.h"
#include "kv/tail_store.h"

namespace kvasir {

// Where a prompt leaves a cached branch.
struct KvDivergence {
  uint32_t at = 0;                   // Index of the first token that differs.
  std::array<TokenId, 16> cached{};  // How the branch, or its newest twig, goes on there instead.
  uint32_t cached_count = 0;
};

// A running sequence and the tokens that it will have computed soon.
struct KvDemand {
  SequenceId id;
  uint32_t tokens = 0;
};

class KvCache : public KvListing {
 public:
  struct Options {
    KvStrategy strategy = KvStrategy::kPaged;
    KvEvict evict = KvEvict::kGdsf;  // Which cached blocks go first; paged only.
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
  // each group (static: one region); kResourceExhausted when it cannot be mapped.
  static StatusOr<std::unique_ptr<KvCache>> Create(const Options& options);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Starts a sequence with the longest cached prefix of `prompt`, but at most all tokens but one:
  // the last one must be computed to know what follows. computed() says how many were reused.
  // `root` names model, format and tenant (RootHash). `most_tokens` is what the sequence can come
  // to at most (prompt and answer), 0 when nobody knows: contiguous strategies reserve by it.
  // nullopt when there is no place now: max_sequences are open, or no region is free.
  // REQUIRES: prompt.size() <= max_sequence_tokens. O(prompt), static and dynamic also O(slots *
  // prompt).
  virtual std::optional<SequenceId> Open(const BlockHash& root, std::span<const TokenId> prompt,
                                         uint32_t most_tokens) = 0;
  std::optional<SequenceId> Open(const BlockHash& root, std::span<const TokenId> prompt) {
    return Open(root, prompt, 0);
  }

  // How many tokens Open would reuse now. Changes nothing. O(tokens).
  virtual uint32_t MatchTokens(const BlockHash& root, std::span<const TokenId> tokens) const = 0;

  // The first token at which `tokens` leave the cached branch that they follow longest: the branch
  // goes on, but with another token. nullopt when nothing of them is cached, when they end or go on
  // where the cached branch ends, and when the branch was evicted. Changes nothing. O(tokens).
  virtual std::optional<KvDivergence> DivergedAt(const BlockHash& root,
                                                 std::span<const TokenId> tokens) const = 0;

  // How the newest cached branch that has the sequence's tokens and then `next` goes on; returns
  // how many tokens of it `out` got. Changes nothing.
  virtual uint32_t Continuation(SequenceId id, std::span<const TokenId> next,
                                std::span<TokenId> out) const = 0;

  // Makes the slots of positions [computed, computed + token_count) writable in all groups:
  // allocates, evicts, moves, copies a shared partial block. False when the memory cannot be had;
  // nothing changed then, except that nothing is reserved any more. REQUIRES: computed +
  // token_count <= max_sequence_tokens.
  [[nodiscard]] virtual bool Reserve(SequenceId id, uint32_t token_count) = 0;

  // The KV of `tokens` was written to the first reserved slots. Advances computed, publishes blocks
  // that became full, lets go of blocks that left the window; ends the reservation (unused blocks
  // stay with the sequence for the next one). REQUIRES: tokens.size() <= what was reserved.
  virtual void Commit(SequenceId id, std::span<const TokenId> tokens) = 0;

  // Forgets computed tokens from `token_count` on, and lets go of reserved blocks beyond.
  // REQUIRES: truncate_floor(id) <= token_count <= computed(id).
  virtual void Truncate(SequenceId id, uint32_t token_count) = 0;
  // The last full block's end, or what the sequence began with, or what is quantized of a staged
  // layout, whichever is most.
  virtual uint32_t truncate_floor(SequenceId id) const = 0;

  // A second sequence with the same computed tokens. Strategies that share let both have every
  // block until one writes to the partial one; the others copy. Ends the reservation of `id`.
  // nullopt when there is no place now.
  virtual std::optional<SequenceId> Fork(SequenceId id) = 0;

  // Ends a sequence. What it computed stays findable until the memory is wanted for others.
  virtual void Close(SequenceId id) = 0;

  // Drops everything that no running sequence or pin needs; returns how many blocks of group 0.
  virtual uint32_t EvictAll() = 0;

  virtual uint32_t computed(SequenceId id) const = 0;
  // Writable slots after computed; 0 outside a step.
  virtual uint32_t reserved(SequenceId id) const = 0;
  // By position / block_tokens; addresses() is what attention reads.
  virtual const BlockTable& table(SequenceId id, uint32_t group) const = 0;

  // Whether all of these could be grown to their tokens now, in steps of `step_tokens` at most,
  // with everything evicted that no sequence needs. Others that are open keep what they have.
  virtual bool FitsTogether(std::span<const KvDemand> demands, uint32_t step_tokens) const = 0;
  // Tokens of the longest sequence that could be held were it alone; at most max_sequence_tokens.
  virtual uint32_t most_tokens_alone() const = 0;
  // Whether Open can reuse what a still running sequence has computed. Waiting for another
  // request's blocks (in-flight dedupe) makes sense only then.
  virtual bool shares_running() const = 0;

  virtual uint32_t open_sequences() const = 0;
  virtual uint32_t block_count(uint32_t group) const = 0;
  virtual uint32_t free_blocks(uint32_t group) const = 0;
  // Cached, and needed by no running sequence: what eviction could free.
  virtual uint32_t idle_blocks(uint32_t group) const = 0;
  virtual KvUsage usage() const = 0;  // O(open sequences).
  virtual const KvCounters& counters() const = 0;
  virtual KvEviction eviction() const;
  // What a token costs to compute for each token before it, of what one at depth 0 costs; gdsf and
  // adaptive weigh by it. As measured: it may be told again and again.
  virtual void SetDepthCost(double depth_cost);

  // Crashes on the first broken rule. O(blocks + table entries): for tests and debug builds.
  virtual void CheckInvariants() const = 0;

  // Where the sequence stages keys, for the next step; read after Reserve, like the tables. A
  // staged layout (KvLayout::staged) also means that a hit ends with a whole block, and that others
  // can find a block when a token after it was computed.
  KvTail tail(SequenceId id) const { return tails_.tail(id, computed(id)); }
  // Rows after the next one that a step may compute on a guess: what may be rejected must not
  // quantize a unit, so a staged layout allows those in the unit of the next row.
  uint32_t most_guessed_rows(SequenceId id) const {
    if (!layout_.staged()) return UINT32_MAX;
    return kKvUnitTokens - 1 - computed(id) % kKvUnitTokens;
  }

  const KvLayout& layout() const { return layout_; }
  uint32_t max_sequence_tokens() const { return max_sequence_tokens_; }

 protected:
  explicit KvCache(const Options& options)
      : layout_(options.layout), max_sequence_tokens_(options.max_sequence_tokens) {}

  // Ids of sequences are below this.
  virtual uint32_t id_limit() const = 0;
  // The tokens of a match that can be reused: whole blocks, if staged.
  uint32_t Reusable(uint32_t tokens) const {
    return layout_.staged() ? tokens / layout_.block_tokens * layout_.block_tokens : tokens;
  }
  uint32_t BlocksFor(uint32_t tokens) const {  // That so many tokens fill, the last one in part.
    return tokens / layout_.block_tokens + (tokens % layout_.block_tokens != 0 ? 1 : 0);
  }
  TailStore& tails() { return tails_; }
  const TailStore& tails() const { return tails_; }

 private:
  const KvLayout layout_;
  const uint32_t max_sequence_tokens_;
  TailStore tails_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_CACHE_H_
