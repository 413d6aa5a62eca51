// BlockArena: the bytes of one group's blocks, [block_count][block_bytes] in huge pages.
//
// Bytes only: which blocks are in use is BlockPool's business, what they mean KvLayout's. Memory is
// mapped at once and touched lazily by the kernel, so an unused block costs address space only.
// Thread: immutable; a block's bytes are written by its one owner.
#ifndef KVASIR_KV_BLOCK_ARENA_H_
#define KVASIR_KV_BLOCK_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/huge_buffer.h"
#include "base/ids.h"

namespace kvasir {

class BlockArena {
 public:
  // kResourceExhausted when the memory cannot be mapped. REQUIRES: both > 0, block_bytes a multiple
  // of 64.
  static StatusOr<BlockArena> Create(uint32_t block_count, size_t block_bytes);

  uint32_t block_count() const { return block_count_; }
  size_t block_bytes() const { return block_bytes_; }

  // 64-byte aligned; fixed for the arena's life.
  std::byte* address(BlockId id) const {
    KV_CHECK_LT(Index(id), block_count_);
    return buffer_.data() + Index(id) * block_bytes_;
  }
  std::span<std::byte> bytes(BlockId id) const { return {address(id), block_bytes_}; }

 private:
  HugeBuffer buffer_;
  uint32_t block_count_ = 0;
  size_t block_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_BLOCK_ARENA_H_
