// KvQuery: what people ask about the cache, or want done to it, as it goes from a handler to the
// engine thread, and what comes back. Plain values.
#ifndef KVASIR_ENGINE_KV_QUERY_H_
#define KVASIR_ENGINE_KV_QUERY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "kv/block_hash.h"
#include "kv/kv_cache.h"

namespace kvasir {

// In each, `root` says whose cache: nothing under another root is seen or touched.

struct KvListQuery {
  BlockHash root{};
  KvCursor from;
  uint32_t limit = 0;  // Entries, at least 1.
  bool with_tokens = false;
};
// The longest cached prefix of `tokens`, or the block `hash` with all before it.
struct KvPinQuery {
  BlockHash root{};
  std::vector<TokenId> tokens;
  std::optional<BlockHash> hash;
  TimeUs ttl_us = 0;
  uint32_t owner = 0;  // KvPinTerms.
};
// The pin of that name, or the one that ends deepest in `tokens`.
struct KvUnpinQuery {
  BlockHash root{};
  std::optional<BlockHash> hash;
  std::vector<TokenId> tokens;
  std::vector<BlockHash> names;  // HashBlocks(root, tokens).
};
struct KvClearQuery {
  BlockHash root{};
};
using KvQuestion = std::variant<KvListQuery, KvPinQuery, KvUnpinQuery, KvClearQuery>;

struct KvAnswer {
  // kUnavailable when the engine stops, kDeadlineExceeded when the question came too late,
  // kResourceExhausted when too many were waiting. The rest is defined for OK only.
  Status status;
  TimeUs now = 0;  // On the clock of the times below.
  // Of a list. `next` may be there though the page is shorter than asked for.
  std::vector<KvCachedEntry> entries;
  std::vector<std::vector<TokenId>> tokens;  // By entry, or empty.
  std::optional<KvCursor> next;
  KvPin pin;  // Of a pin.
  TimeUs pinned_until = 0;
  std::optional<BlockHash> unpinned;
  uint32_t cleared_blocks = 0;
};

struct KvQuery {
  KvQuestion question;
  TimeUs deadline = kNever;  // On the engine's clock.
  // Called exactly once, on the engine thread, which it must not hold up: it posts and returns.
  std::function<void(KvAnswer)> done;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_KV_QUERY_H_
