#include "kv/block_pool.h"

#include "base/check.h"

namespace kvasir {

BlockPool::BlockPool(uint32_t block_count) : pins_(block_count, 0) {
  KV_CHECK_GT(block_count, 0u);
  KV_CHECK_LT(block_count, Index(kNoBlock));
  free_.reserve(block_count);  // The last allocation: Unpin runs inside the step and must not grow.
  for (uint32_t i = block_count; i > 0; --i) free_.push_back(BlockId{i - 1});
}

std::optional<BlockId> BlockPool::Allocate() {
  if (free_.empty()) return std::nullopt;
  const BlockId id = free_.back();
  free_.pop_back();
  // A pinned block on the free list would let two sequences write over each other, and nothing
  // downstream could notice. Stop here instead.
  KV_CHECK_EQ(pins_[Index(id)], 0u);
  pins_[Index(id)] = 1;
  return id;
}

void BlockPool::Pin(BlockId id) {
  KV_CHECK_LT(Index(id), block_count());
  KV_CHECK_GT(pins_[Index(id)], 0u);
  ++pins_[Index(id)];
}

void BlockPool::Unpin(BlockId id) {
  KV_CHECK_LT(Index(id), block_count());
  KV_CHECK_GT(pins_[Index(id)], 0u);
  if (--pins_[Index(id)] == 0) free_.push_back(id);
}

void BlockPool::CheckInvariants() const {
  std::vector<bool> is_free(block_count(), false);
  for (const BlockId id : free_) {
    KV_CHECK_LT(Index(id), block_count());
    KV_CHECK(!is_free[Index(id)]);
    is_free[Index(id)] = true;
  }
  for (uint32_t i = 0; i < block_count(); ++i) KV_CHECK(is_free[i] == (pins_[i] == 0));
}

}  // namespace kvasir
