// RegionPool: which runs of blocks are free, for strategies that keep a sequence in one piece.
//
// Best fit: a region comes from the smallest free run that holds it, the lowest of equals, and from
// that run's begin. Neighbouring free runs are one run (coalescing). Any part of what was taken may
// be given back. Bookkeeping only: bytes live in BlockArena.
//
// Invariant: runs are sorted by address, none is empty, no two touch.
// Thread:    engine loop only. Nothing allocates after construction.
// Source:    Knuth, The Art of Computer Programming, volume 1, section 2.5 (best fit, boundaries).
#ifndef KVASIR_KV_REGION_POOL_H_
#define KVASIR_KV_REGION_POOL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvasir {

// Blocks [first, end).
struct Region {
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t end() const { return first + count; }
  friend bool operator==(const Region&, const Region&) = default;
};

class RegionPool {
 public:
  explicit RegionPool(uint32_t block_count);  // REQUIRES: block_count > 0.

  // Takes `count` blocks in one piece, or nullopt when no run is that long. REQUIRES: count > 0.
  // O(runs).
  [[nodiscard]] std::optional<Region> Allocate(uint32_t count);

  // Takes exactly these blocks if all of them are free. REQUIRES: within the pool. O(runs).
  [[nodiscard]] bool TakeAt(Region region);

  // Gives blocks back. REQUIRES: all of them are taken. O(runs).
  void Free(Region region);

  uint32_t block_count() const { return block_count_; }
  uint32_t free_count() const { return free_count_; }
  uint32_t largest_run() const;  // 0 when nothing is free. O(runs).
  // Free runs by address; valid until the pool changes.
  std::span<const Region> runs() const { return runs_; }

  // 1 - largest run / free blocks: the share of the free memory that one request for all of it
  // would not get. 0 when nothing is free.
  double fragmentation() const;

  void CheckInvariants() const;

 private:
  size_t FirstRunAfter(uint32_t block) const;  // Index of the first run that begins beyond it.
  void TakeFrom(size_t run, Region region);

  uint32_t block_count_;
  uint32_t free_count_;
  std::vector<Region> runs_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_REGION_POOL_H_
