#include "kv/tail_store.h"

#include <cstring>

#include "base/check.h"

namespace kvasir {

uint64_t TailStore::SlotBytes(const KvLayout& layout) {
  uint64_t bytes = 0;
  for (uint32_t group = 0; group < layout.group_count(); ++group) bytes += layout.tail_bytes(group);
  return bytes;
}

StatusOr<TailStore> TailStore::Create(const KvLayout& layout, uint32_t slots, uint32_t id_limit) {
  TailStore store;
  store.bytes_ = SlotBytes(layout);
  if (store.bytes_ == 0) return store;
  store.group_count_ = layout.group_count();
  for (uint32_t group = 1; group < layout.group_count(); ++group) {
    store.offset_[group] = store.offset_[group - 1] + layout.tail_bytes(group - 1);
  }
  store.places_.resize(id_limit);
  store.free_slots_.reserve(slots);
  for (uint32_t slot = slots; slot-- > 0;) store.free_slots_.push_back(slot);
  KV_ASSIGN_OR_RETURN(store.memory_, HugeBuffer::Allocate(store.bytes_ * slots));
  return store;
}

void TailStore::Begin(SequenceId id, uint32_t reused) {
  if (bytes_ == 0) return;
  KV_CHECK_EQ(reused % kKvUnitTokens, 0u);
  KV_CHECK(!free_slots_.empty());
  Place& place = places_[Index(id)];
  KV_CHECK(place.slot == kNoSlot);
  place = {free_slots_.back(), reused};
  free_slots_.pop_back();
}

void TailStore::Fork(SequenceId from, SequenceId to) {
  if (bytes_ == 0) return;
  const Place& source = places_[Index(from)];
  KV_CHECK(source.slot != kNoSlot);
  Begin(to, source.quantized);
  std::memcpy(memory_.data() + places_[Index(to)].slot * bytes_,
              memory_.data() + source.slot * bytes_, bytes_);
}

void TailStore::Advance(SequenceId id, uint32_t computed) {
  if (bytes_ == 0 || computed == 0) return;
  Place& place = places_[Index(id)];
  KV_CHECK(place.slot != kNoSlot);
  const uint32_t quantized = (computed - 1) / kKvUnitTokens * kKvUnitTokens;
  // Nothing new may have been computed after reused tokens.
  if (quantized > place.quantized) place.quantized = quantized;
}

void TailStore::End(SequenceId id) {
  if (bytes_ == 0) return;
  Place& place = places_[Index(id)];
  KV_CHECK(place.slot != kNoSlot);
  free_slots_.push_back(place.slot);
  place = {};
}

KvTail TailStore::tail(SequenceId id, uint32_t computed) const {
  KvTail tail;
  if (bytes_ == 0) return tail;
  const Place& place = places_[Index(id)];
  KV_CHECK(place.slot != kNoSlot);
  KV_CHECK_LE(place.quantized, computed);
  KV_CHECK_LE(computed - place.quantized, kKvUnitTokens);
  tail.complete = computed - place.quantized == kKvUnitTokens;
  for (uint32_t group = 0; group < group_count_; ++group) {
    tail.memory[group] = memory_.data() + place.slot * bytes_ + offset_[group];
  }
  return tail;
}

}  // namespace kvasir
