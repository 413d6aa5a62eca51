// BlockPool: which KV blocks are free, and how many owners pin each of the others.
//
// Bookkeeping only: bytes live in BlockArena, content names in PrefixTree. An owner is a BlockTable
// (a running sequence), the PrefixTree (a cached prefix) or an in-flight transfer; a block may be
// evicted exactly when the tree is its only owner.
//
// Invariant: every id is either on the free list once (pins == 0) or pinned (pins > 0).
// Thread:    engine loop only; no locks, no allocation after construction.
// Source:    PagedAttention, Kwon et al., SOSP 2023 (arXiv:2309.06180), section 4.
#ifndef KVASIR_KV_BLOCK_POOL_H_
#define KVASIR_KV_BLOCK_POOL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace kvasir {

class BlockPool {
 public:
  explicit BlockPool(uint32_t block_count);  // REQUIRES: 0 < block_count < Index(kNoBlock).

  // Pins one free block for the caller, or returns nullopt when none is free. Exhaustion is an
  // expected outcome, not an error: the caller evicts or preempts. The block's bytes are stale.
  [[nodiscard]] std::optional<BlockId> Allocate();

  // Adds an owner. REQUIRES: pins(id) > 0; a free block has no content to share.
  void Pin(BlockId id);

  // Removes an owner; the last one frees the block. REQUIRES: pins(id) > 0.
  void Unpin(BlockId id);

  // REQUIRES for all three: Index(id) < block_count.
  uint32_t pins(BlockId id) const { return pins_[Index(id)]; }
  uint32_t free_count() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t block_count() const { return static_cast<uint32_t>(pins_.size()); }

  // Crashes on the first broken invariant. O(block_count): for tests and debug builds.
  void CheckInvariants() const;

 private:
  std::vector<uint32_t> pins_;  // [block_count]; 0 means free.
  std::vector<BlockId> free_;   // A stack: the block freed last is still warm in the CPU cache.
};

}  // namespace kvasir

#endif  // KVASIR_KV_BLOCK_POOL_H_
