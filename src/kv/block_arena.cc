#include "kv/block_arena.h"

#include <utility>

namespace kvasir {

StatusOr<BlockArena> BlockArena::Create(uint32_t block_count, size_t block_bytes) {
  KV_CHECK_GT(block_count, 0u);
  KV_CHECK_GT(block_bytes, size_t{0});
  KV_CHECK_EQ(block_bytes % 64, size_t{0});
  if (block_bytes > SIZE_MAX / block_count) {
    return ResourceExhausted("{} KV blocks of {} bytes are more than the address space",
                             block_count, block_bytes);
  }
  BlockArena arena;
  KV_ASSIGN_OR_RETURN(arena.buffer_, HugeBuffer::Allocate(block_bytes * block_count));
  arena.block_count_ = block_count;
  arena.block_bytes_ = block_bytes;
  return arena;
}

}  // namespace kvasir
