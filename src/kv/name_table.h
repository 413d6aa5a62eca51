// NameTable: which of up to `capacity` 64-bit names are there, each with a number.
//
// Open addressing with linear probing; erasing shifts back, so that no tombstones pile up and
// nothing is rehashed. Names are bits of hashes, hence spread already, but their low bits choose
// other things elsewhere: they are mixed once more.
// Thread: engine loop only; no allocation after construction. O(1) a call.
#ifndef KVASIR_KV_NAME_TABLE_H_
#define KVASIR_KV_NAME_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace kvasir {

class NameTable {
 public:
  explicit NameTable(uint32_t capacity);  // REQUIRES: 0 < capacity < 2^30.

  std::optional<uint32_t> Find(uint64_t name) const;
  void Insert(uint64_t name, uint32_t value);  // REQUIRES: absent, size() < capacity.
  void Erase(uint64_t name);                   // REQUIRES: present.
  uint32_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t name = 0;
    uint32_t value = kEmpty;
  };
  static constexpr uint32_t kEmpty = 0xFFFFFFFFu;
  uint32_t Home(uint64_t name) const;

  uint32_t capacity_;
  uint32_t size_ = 0;
  std::vector<Slot> slots_;  // A power of two, at most half full.
};

// GhostList: the names of the blocks that were evicted last, first in, first out.
class GhostList {
 public:
  explicit GhostList(uint32_t capacity);

  void Add(uint64_t name);   // Forgets the oldest when full.
  bool Take(uint64_t name);  // True when it was there; it no longer is.
  bool Contains(uint64_t name) const { return table_.Find(name).has_value(); }
  uint32_t size() const { return table_.size(); }

 private:
  std::vector<uint64_t> ring_;  // [capacity]; a name counts where the table says this place.
  uint32_t next_ = 0;
  NameTable table_;  // Name -> place in ring_.
};

}  // namespace kvasir

#endif  // KVASIR_KV_NAME_TABLE_H_
