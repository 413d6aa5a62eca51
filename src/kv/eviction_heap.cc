#include "kv/eviction_heap.h"

#include "base/check.h"

namespace kvasir {

EvictionHeap::EvictionHeap(uint32_t item_count) : position_(item_count, kAbsent) {
  KV_CHECK_LT(item_count, kAbsent);
  heap_.reserve(item_count);
}

void EvictionHeap::Place(uint32_t index, const Entry& entry) {
  heap_[index] = entry;
  position_[entry.item] = index;
}

void EvictionHeap::SiftUp(uint32_t index) {
  const Entry entry = heap_[index];
  while (index > 0) {
    const uint32_t parent = (index - 1) / 2;
    ++comparisons_;
    if (!Before(entry, heap_[parent])) break;
    Place(index, heap_[parent]);
    index = parent;
  }
  Place(index, entry);
}

void EvictionHeap::SiftDown(uint32_t index) {
  const Entry entry = heap_[index];
  while (true) {
    uint32_t child = 2 * index + 1;
    if (child >= size()) break;
    comparisons_ += 2;
    if (child + 1 < size() && Before(heap_[child + 1], heap_[child])) ++child;
    if (!Before(heap_[child], entry)) break;
    Place(index, heap_[child]);
    index = child;
  }
  Place(index, entry);
}

void EvictionHeap::Push(uint32_t item, uint64_t priority, uint64_t stamp) {
  KV_CHECK_LT(item, position_.size());
  KV_CHECK_EQ(position_[item], kAbsent);
  heap_.push_back(Entry{priority, stamp, item});
  SiftUp(size() - 1);
}

void EvictionHeap::Remove(uint32_t item) {
  KV_CHECK_LT(item, position_.size());
  const uint32_t index = position_[item];
  KV_CHECK_NE(index, kAbsent);
  const Entry last = heap_.back();
  heap_.pop_back();
  position_[item] = kAbsent;
  if (index == size()) return;  // It was the last one itself.
  Place(index, last);
  SiftUp(index);
  SiftDown(position_[last.item]);
}

uint32_t EvictionHeap::Top() const {
  KV_CHECK(!heap_.empty());
  return heap_.front().item;
}

uint64_t EvictionHeap::top_priority() const {
  KV_CHECK(!heap_.empty());
  return heap_.front().priority;
}

void EvictionHeap::CheckInvariants() const {
  uint32_t present = 0;
  for (uint32_t item = 0; item < position_.size(); ++item) {
    if (position_[item] == kAbsent) continue;
    ++present;
    KV_CHECK_LT(position_[item], size());
    KV_CHECK_EQ(heap_[position_[item]].item, item);
  }
  KV_CHECK_EQ(present, size());
  for (uint32_t i = 1; i < size(); ++i) KV_CHECK(Before(heap_[(i - 1) / 2], heap_[i]));
}

}  // namespace kvasir
