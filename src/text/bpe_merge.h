// BpeMerge: the merge loop that byte-level BPE and SentencePiece-BPE share.
//
// Start from one symbol per character (or byte); while some pair of neighbours may merge, merge the
// pair of best priority, the leftmost among equals. Which pairs may merge, into what and how well
// is the Rules' business. O(n log n): a heap of candidate pairs, whose entries are checked when
// they come up instead of being removed when they become stale.
//
// Symbols are addressed by the byte offset of their first byte, so a symbol's right neighbour is at
// offset + length, and only the left neighbour has to be stored.
//
// Source: Sennrich, Haddow, Birch 2016 (arXiv:1508.07909); Kudo, Richardson 2018
// (arXiv:1808.06226).
#ifndef KVASIR_TEXT_BPE_MERGE_H_
#define KVASIR_TEXT_BPE_MERGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvasir {

struct MergeSymbol {
  int32_t id = -1;      // Token, or -1 when the vocabulary has none for this text.
  uint32_t length = 0;  // Bytes; 0: swallowed by a symbol further left.
  uint32_t left = 0;    // Offset of the left neighbour; kNoSymbol at the beginning.
};

struct MergeCandidate {
  uint32_t priority = 0;  // Lower merges first.
  int32_t id = -1;        // What the pair becomes.
};

// The working memory of one run, kept between runs so that short ones allocate nothing.
class BpeMerge {
 public:
  static constexpr uint32_t kNoSymbol = 0xFFFFFFFFu;

  // Begins a run of `byte_count` bytes. REQUIRES: byte_count < 2^32 - 1.
  void Reset(size_t byte_count) {
    symbols_.resize(byte_count);
    heap_.clear();
    size_ = static_cast<uint32_t>(byte_count);
    filled_ = 0;
    last_ = kNoSymbol;
  }

  // Appends the next symbol. The lengths of a run must add up to its byte_count.
  void Add(int32_t id, uint32_t length) {
    symbols_[filled_] = {id, length, last_};
    last_ = filled_;
    filled_ += length;
  }

  // Merges until no pair may. Rules::operator()(left, right, offset, length, MergeCandidate*) says
  // whether the neighbours `left` and `right`, together the bytes [offset, offset + length), may.
  template <typename Rules>
  void Run(const Rules& rules);

  // The symbols that are left, in order: at(0), then at(offset + its length), up to size().
  const MergeSymbol& at(size_t offset) const { return symbols_[offset]; }
  size_t size() const { return size_; }

  // Candidates that went through the heap since construction: the cost that tests bound.
  uint64_t heap_operations() const { return heap_operations_; }

 private:
  struct Entry {
    uint64_t key;     // priority << 32 | offset of the left symbol: ties go to the leftmost pair.
    uint32_t length;  // Of both together; another value now means that one of them has changed.
    int32_t id;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return a.key > b.key; }
  };

  template <typename Rules>
  bool MakeEntry(const Rules& rules, uint32_t offset, Entry* entry) const;

  std::vector<MergeSymbol> symbols_;  // [byte_count], meaningful at symbol starts only.
  std::vector<Entry> heap_;           // Smallest key in front.
  uint32_t size_ = 0;
  uint32_t filled_ = 0;
  uint32_t last_ = kNoSymbol;
  uint64_t heap_operations_ = 0;
};

template <typename Rules>
bool BpeMerge::MakeEntry(const Rules& rules, uint32_t offset, Entry* entry) const {
  const MergeSymbol& left = symbols_[offset];
  const uint32_t right_offset = offset + left.length;
  if (right_offset >= size_) return false;
  const MergeSymbol& right = symbols_[right_offset];
  MergeCandidate candidate;
  const uint32_t length = left.length + right.length;
  if (!rules(left, right, offset, length, &candidate)) return false;
  *entry = {static_cast<uint64_t>(candidate.priority) << 32 | offset, length, candidate.id};
  return true;
}

template <typename Rules>
void BpeMerge::Run(const Rules& rules) {
  Entry entry{};
  for (uint32_t offset = 0; offset < size_; offset += symbols_[offset].length) {
    if (MakeEntry(rules, offset, &entry)) heap_.push_back(entry);
  }
  heap_operations_ += heap_.size();
  std::make_heap(heap_.begin(), heap_.end(), Later());
  const auto push = [&](uint32_t offset) {
    if (!MakeEntry(rules, offset, &entry)) return;
    heap_.push_back(entry);
    std::push_heap(heap_.begin(), heap_.end(), Later());
    ++heap_operations_;
  };
  while (!heap_.empty()) {
    const Entry best = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), Later());
    heap_.pop_back();
    const uint32_t offset = static_cast<uint32_t>(best.key);
    MergeSymbol& left = symbols_[offset];
    // A symbol only ever grows to the right or vanishes, so an unchanged total length means that
    // both halves are the ones the entry was made for.
    if (left.length == 0 || left.length >= best.length) continue;
    MergeSymbol& right = symbols_[offset + left.length];
    if (left.length + right.length != best.length) continue;
    right.length = 0;
    left.length = best.length;
    left.id = best.id;
    const uint32_t next = offset + best.length;
    if (next < size_) symbols_[next].left = offset;
    if (left.left != kNoSymbol) push(left.left);
    push(offset);
  }
}

}  // namespace kvasir

#endif  // KVASIR_TEXT_BPE_MERGE_H_
