// What people may see of a cache and do to it: entries of a listing, the outcome of a pin. Plain
// values; KvCache has the calls. None of them holds text or tokens.
#ifndef KVASIR_KV_KV_LISTING_H_
#define KVASIR_KV_KV_LISTING_H_

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "kv/block_hash.h"

namespace kvasir {

// One cached block of tokens (contiguous strategies: one cached sequence).
struct KvCachedEntry {
  BlockHash hash;
  BlockHash parent;         // Of the block before it; the root's for the first.
  uint32_t depth = 0;       // Tokens before it.
  uint32_t tokens = 0;      // Its own.
  uint64_t bytes = 0;       // Of all groups.
  uint32_t uses = 0;        // Sequences that had it, who computed it included.
  TimeUs last_use = 0;      // When a sequence took it or let go of it last.
  bool busy = false;        // A running sequence has it.
  bool pinned = false;      // It lies on the path of a pin.
  TimeUs pinned_until = 0;  // Of the pin that ends here; 0: none does.
};

// Where a listing or a clearing stands. Begin with {}.
struct KvCursor {
  uint64_t at = 0;
};

struct KvPage {
  uint32_t count = 0;            // Entries written; may be 0 though more follow.
  std::optional<KvCursor> next;  // nullopt: that was all.
};

struct KvCleared {
  uint32_t blocks = 0;  // Of group 0.
  std::optional<KvCursor> next;
};

enum class KvPinOutcome : uint8_t {
  kPinned,
  kNotCached,    // Nothing of it is in the cache.
  kOverLimit,    // Pins would keep more than half of the blocks.
  kTooMany,      // kMostPins are in force.
  kUnsupported,  // The strategy has no pins.
};

struct KvPin {
  KvPinOutcome outcome = KvPinOutcome::kUnsupported;
  BlockHash hash;       // Of the last block that is kept: names the pin.
  uint32_t tokens = 0;  // Kept: the longest cached prefix of what was asked for.
  uint32_t blocks = 0;  // Of group 0, on the pin's path; kOverLimit: that it would need.
  uint32_t limit = 0;   // Blocks of group 0 that all pins together may keep.
};

inline constexpr uint32_t kMostPins = 256;

}  // namespace kvasir

#endif  // KVASIR_KV_KV_LISTING_H_
