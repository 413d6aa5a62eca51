// BlockTable: where one sequence's KV of one group lies: block ids and base addresses by
// position / block_tokens, side by side.
//
// Entries before a sliding window hold no block (kNoBlock, nullptr); attention never reads them.
// The table neither pins nor unpins: KvCache does, and keeps both in step.
//
// Invariant: entries [0, first_held) hold no block; entries [first_held, size) do.
// Thread:    written by the engine loop between steps, read by kernels during one. Capacity is
//            fixed at construction; nothing allocates after it.
#ifndef KVASIR_KV_BLOCK_TABLE_H_
#define KVASIR_KV_BLOCK_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace kvasir {

class BlockTable {
 public:
  explicit BlockTable(uint32_t capacity);

  uint32_t size() const { return static_cast<uint32_t>(ids_.size()); }
  uint32_t capacity() const { return capacity_; }
  uint32_t first_held() const { return first_held_; }
  uint32_t held_count() const { return size() - first_held_; }

  BlockId id(uint32_t index) const { return ids_[index]; }
  std::span<const BlockId> ids() const { return ids_; }
  // What kernels read: [size] block base addresses; nullptr before first_held. Stays valid until
  // the table changes.
  std::span<std::byte* const> addresses() const { return addresses_; }

  // Appends a block. REQUIRES: size < capacity, id is a block.
  void Append(BlockId id, std::byte* address);
  // Appends an entry that holds no block. REQUIRES: size < capacity, nothing held yet.
  void AppendAbsent();
  // Puts another block in place of the one at `index` (copy-on-write, or a shared twin) and returns
  // the old one. REQUIRES: index in [first_held, size).
  BlockId Replace(uint32_t index, BlockId id, std::byte* address);
  // Lets go of the first held entry, which stays as an absent one, and returns its block.
  // REQUIRES: held_count() > 0.
  BlockId DropFirst();
  // Removes the last entry and returns its block. REQUIRES: held_count() > 0.
  BlockId RemoveLast();
  // Empties the table. REQUIRES: held_count() == 0.
  void Clear();

  void CheckInvariants() const;

 private:
  uint32_t capacity_;
  uint32_t first_held_ = 0;
  std::vector<BlockId> ids_;           // [size]
  std::vector<std::byte*> addresses_;  // [size]
};

}  // namespace kvasir

#endif  // KVASIR_KV_BLOCK_TABLE_H_
