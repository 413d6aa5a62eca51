#include "kv/tail_store.h"

#include <cstring>

#include "base/check.h"

namespace kvasir {

uint64_t TailStore::SlotBytes(const KvLayout& layout) {
  uint64_t bytes = 0;
  for (uint32_t group = 0; group < layout.group_count(); ++group) bytes += layout.tail_bytes(group);
  return bytes;
}

StatusOr<TailStore> TailStore::Create(const KvLayout& layout, uint32_t slots) {
  TailStore store;
  store.bytes_ = SlotBytes(layout);
  if (store.bytes_ == 0) return store;
  store.group_count_ = layout.group_count();
  for (uint32_t group = 1; group < layout.group_count(); ++group) {
    store.offset_[group] = store.offset_[group - 1] + layout.tail_bytes(group - 1);
  }
  store.quantized_.assign(slots, 0);
  KV_ASSIGN_OR_RETURN(store.memory_, HugeBuffer::Allocate(store.bytes_ * slots));
  return store;
}

void TailStore::Begin(uint32_t slot, uint32_t reused) {
  if (bytes_ == 0) return;
  KV_CHECK_EQ(reused % kKvUnitTokens, 0u);
  quantized_[slot] = reused;
}

void TailStore::Advance(uint32_t slot, uint32_t computed) {
  if (bytes_ == 0) return;
  KV_CHECK_GT(computed, 0u);
  const uint32_t quantized = (computed - 1) / kKvUnitTokens * kKvUnitTokens;
  KV_CHECK_GE(quantized, quantized_[slot]);
  quantized_[slot] = quantized;
}

void TailStore::Copy(uint32_t from, uint32_t to) {
  if (bytes_ == 0) return;
  quantized_[to] = quantized_[from];
  std::memcpy(memory_.data() + to * bytes_, memory_.data() + from * bytes_, bytes_);
}

KvTail TailStore::tail(uint32_t slot, uint32_t computed) const {
  KvTail tail;
  if (bytes_ == 0) return tail;
  KV_CHECK_LE(quantized_[slot], computed);
  KV_CHECK_LE(computed - quantized_[slot], kKvUnitTokens);
  tail.complete = computed - quantized_[slot] == kKvUnitTokens;
  for (uint32_t group = 0; group < group_count_; ++group) {
    tail.memory[group] = memory_.data() + slot * bytes_ + offset_[group];
  }
  return tail;
}

}  // namespace kvasir
