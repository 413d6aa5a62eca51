// EvictionHeap: a set of items with priorities that hands out the smallest one.
//
// An indexed binary heap: any member can be removed or found in O(log n), which a plain priority
// queue cannot. Ties go to the smaller stamp, then to the smaller item, so that the order never
// depends on history.
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
  void Push(uint32_t item, uint64_t priority, uint64_t stamp = 0);
  // REQUIRES: item is present. O(log n).
  void Remove(uint32_t item);
  // The item with the smallest priority. REQUIRES: not empty. O(1).
  uint32_t Top() const;
  uint64_t top_priority() const;  // REQUIRES: not empty.

  uint64_t comparisons() const { return comparisons_; }  // Of two entries, since construction.

  void CheckInvariants() const;

 private:
  static constexpr uint32_t kAbsent = 0xFFFFFFFFu;
  struct Entry {
    uint64_t priority;
    uint64_t stamp;
    uint32_t item;
  };
  static bool Before(const Entry& a, const Entry& b) {
    if (a.priority != b.priority) return a.priority < b.priority;
    return a.stamp != b.stamp ? a.stamp < b.stamp : a.item < b.item;
  }
  void Place(uint32_t index, const Entry& entry);
  void SiftUp(uint32_t index);
  void SiftDown(uint32_t index);

  std::vector<Entry> heap_;         // [size], the smallest first.
  std::vector<uint32_t> position_;  // [item_count]; index into heap_, or kAbsent.
  uint64_t comparisons_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_EVICTION_HEAP_H_
