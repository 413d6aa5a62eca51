// KvDesk: where questions about the cache wait, and are answered a page at a time between steps.
//
// A step is never held up by more than kPagesPerTurn pages of bounded work, however much is cached
// and however many ask; waiting questions take turns, so that a long one does not hold up short
// ones. Thread: the engine loop only.
#ifndef KVASIR_ENGINE_KV_DESK_H_
#define KVASIR_ENGINE_KV_DESK_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "engine/kv_query.h"

namespace kvasir {

class KvDesk {
 public:
  static constexpr uint32_t kPagesPerTurn = 4;
  static constexpr uint32_t kPageEntries = 64;
  static constexpr uint32_t kClearBlocks = 64;    // Looked at in a page of a clearing.
  static constexpr uint32_t kShownTokens = 4096;  // Of one entry at most.

  // `kv` must outlive it. Beyond `capacity` waiting questions further ones are refused.
  KvDesk(KvCache& kv, size_t capacity) : kv_(kv), capacity_(capacity) {}

  void Take(KvQuery query);
  // One turn. REQUIRES: no reservation is open (between steps).
  void Work(TimeUs now);
  // Answers all that wait with kUnavailable.
  void Close();
  bool idle() const { return waiting_.empty(); }

 private:
  struct Waiting {
    KvQuery query;
    KvAnswer answer;     // As far as it has come.
    KvCursor from;       // Of a clearing, or of the search for a pin.
    uint32_t depth = 0;  // Of the pin found so far.
  };
  bool Page(Waiting& waiting, TimeUs now);  // True: the answer is complete.
  bool List(const KvListQuery& query, KvAnswer* answer);
  void Pin(const KvPinQuery& query, KvAnswer* answer);
  bool Unpin(const KvUnpinQuery& query, Waiting& waiting);
  bool LiesOn(const KvUnpinQuery& query, const KvCachedEntry& entry) const;

  KvCache& kv_;
  const size_t capacity_;
  std::deque<Waiting> waiting_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_KV_DESK_H_
