#include "kv/block_table.h"

#include "base/check.h"

namespace kvasir {

BlockTable::BlockTable(uint32_t capacity) : capacity_(capacity) {
  ids_.reserve(capacity);
  addresses_.reserve(capacity);
}

void BlockTable::Append(BlockId id, std::byte* address) {
  KV_CHECK_LT(size(), capacity_);
  KV_CHECK_NE(id, kNoBlock);
  KV_CHECK(address != nullptr);
  ids_.push_back(id);
  addresses_.push_back(address);
}

void BlockTable::AppendAbsent() {
  KV_CHECK_LT(size(), capacity_);
  KV_CHECK_EQ(held_count(), 0u);
  ids_.push_back(kNoBlock);
  addresses_.push_back(nullptr);
  ++first_held_;
}

BlockId BlockTable::Replace(uint32_t index, BlockId id, std::byte* address) {
  KV_CHECK_GE(index, first_held_);
  KV_CHECK_LT(index, size());
  KV_CHECK_NE(id, kNoBlock);
  KV_CHECK(address != nullptr);
  const BlockId old = ids_[index];
  ids_[index] = id;
  addresses_[index] = address;
  return old;
}

BlockId BlockTable::DropFirst() {
  KV_CHECK_GT(held_count(), 0u);
  const BlockId old = ids_[first_held_];
  ids_[first_held_] = kNoBlock;
  addresses_[first_held_] = nullptr;
  ++first_held_;
  return old;
}

BlockId BlockTable::RemoveLast() {
  KV_CHECK_GT(held_count(), 0u);
  const BlockId old = ids_.back();
  ids_.pop_back();
  addresses_.pop_back();
  return old;
}

void BlockTable::Clear() {
  KV_CHECK_EQ(held_count(), 0u);
  ids_.clear();
  addresses_.clear();
  first_held_ = 0;
}

void BlockTable::CheckInvariants() const {
  KV_CHECK_EQ(ids_.size(), addresses_.size());
  KV_CHECK_LE(size(), capacity_);
  KV_CHECK_LE(first_held_, size());
  for (uint32_t i = 0; i < size(); ++i) {
    KV_CHECK((ids_[i] == kNoBlock) == (i < first_held_));
    KV_CHECK((addresses_[i] == nullptr) == (i < first_held_));
  }
}

}  // namespace kvasir
