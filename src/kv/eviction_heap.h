// EvictionHeap: a set of items with priorities that hands out the smallest one.
//
// An indexed binary heap: any member can be removed or found in O(log n), which a plain priority
// queue cannot. Ties go to the smaller item, so that the order never depends on history.
// Least recently used is "priority = time of last use"; other policies differ in the number only.
// Thread: engine loop only; no allocation after construction.
#ifndef KVASIR_KV_EVICTION_HEAP_H_
#define KVASIR_KV_EVICTION_HEAP_H_

#include <cstdint>
#include <vector>

namespace kvasir {

class EvictionHeap {
 public:
  explicit EvictionHeap(uint32_t item_count);  // Items are 0..item_count-1.

  uint32_t size() const { return static_cast<uint32_t>(heap_.size()); }
  bool empty() const { return heap_.empty(); }
  bool Contains(uint32_t item) const { return position_[item] != kAbsent; }

  // REQUIRES: item is absent. O(log n).
  void Push(uint32_t item, uint64_t priority);
  // REQUIRES: item is present. O(log n).
  void Remove(uint32_t item);
  // The item with the smallest priority. REQUIRES: not empty. O(1).
  uint32_t Top() const;

  void CheckInvariants() const;

 private:
  static constexpr uint32_t kAbsent = 0xFFFFFFFFu;
  struct Entry {
    uint64_t priority;
    uint32_t item;
  };
  static bool Before(const Entry& a, const Entry& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.item < b.item;
  }
  void Place(uint32_t index, const Entry& entry);
  void SiftUp(uint32_t index);
  void SiftDown(uint32_t index);

  std::vector<Entry> heap_;         // [size], the smallest first.
  std::vector<uint32_t> position_;  // [item_count]; index into heap_, or kAbsent.
};

}  // namespace kvasir

#endif  // KVASIR_KV_EVICTION_HEAP_H_
