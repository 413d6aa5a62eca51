// KvListing: what people may see of a KvCache and do to it: list, keep, drop. The values hold names
// and counts, no text; a root stands for a tenant, who sees and touches what is under it only.
// Thread: engine loop only, between steps. Strategies without these have the defaults: they list
// nothing and refuse pins as unsupported.
#ifndef KVASIR_KV_KV_LISTING_H_
#define KVASIR_KV_KV_LISTING_H_

#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/ids.h"
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
  kOverLimit,    // The owner's pins would keep more than its share of the blocks.
  kTooMany,      // The owner has its share of kMostPins already.
  kUnsupported,  // The strategy has no pins.
};

struct KvPin {
  KvPinOutcome outcome = KvPinOutcome::kUnsupported;
  BlockHash hash;       // Of the last block that is kept: names the pin.
  uint32_t tokens = 0;  // Kept: the longest cached prefix of what was asked for.
  uint32_t blocks = 0;  // Of group 0, on the pin's path; kOverLimit: that it would need.
  uint32_t limit = 0;   // Blocks of group 0 that the owner's pins together may keep.
};

inline constexpr uint32_t kMostPins = 256;

// How long a pin is in force, and whose it is (the number of a key, say): owners have shares of
// what pins may keep, whatever roots they use. All pins of one root have one owner, the first.
struct KvPinTerms {
  KvPinTerms(TimeUs until_time, uint32_t owner_number = 0)
      : until(until_time), owner(owner_number) {}
  TimeUs until;
  uint32_t owner;
};

class KvListing {
 public:
  virtual ~KvListing() = default;

  // It is `now`: uses are stamped with it, and pins whose time is over let go. The cache has no
  // clock; whoever plans steps says this before each.
  virtual void AdvanceTo(TimeUs now);

  // What is cached under `root`, in pages: writes at most out.size() entries and looks at so many
  // blocks at most that it can be asked between two steps; each entry that stays cached from the
  // first page to the last is listed once, in no order.
  virtual KvPage ListCached(const BlockHash& root, KvCursor from,
                            std::span<KvCachedEntry> out) const;
  // The tokens of one listed entry, at most out.size(); 0 when it is cached no more.
  virtual uint32_t CachedTokens(const BlockHash& root, const BlockHash& hash,
                                std::span<TokenId> out) const;
  // Keeps the longest cached prefix of `tokens`, or the block of that name and all before it, for
  // the time given, or sets the time of the pin that is there. Pins outlive EvictAll and
  // ClearCached. All together keep at most half of the blocks, those of one owner at most half of
  // what others leave of that, so that something is left for everybody; the same goes for their
  // number, of kMostPins.
  // Beyond that they are refused, and a sequence that is alone and cannot go on breaks them
  // (counted), so that they never stop the service. O(tokens).
  virtual KvPin PinCached(const BlockHash& root, std::span<const TokenId> tokens, KvPinTerms terms);
  virtual KvPin PinCached(const BlockHash& root, const BlockHash& hash, KvPinTerms terms);
  // Ends the pin of that name, whose blocks then are like others. False when there is none.
  virtual bool UnpinCached(const BlockHash& root, const BlockHash& hash);
  // Drops what no running sequence or pin needs of `root`, in pages that look at `most` blocks.
  virtual KvCleared ClearCached(const BlockHash& root, KvCursor from, uint32_t most);
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_LISTING_H_
