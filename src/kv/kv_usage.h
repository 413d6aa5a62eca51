// What a KvCache says of itself in numbers: totals since Create, and the memory of the moment.
// Plain values.
#ifndef KVASIR_KV_KV_USAGE_H_
#define KVASIR_KV_KV_USAGE_H_

#include <array>
#include <cstdint>

#include "kv/kv_layout.h"

namespace kvasir {

// Totals since Create.
struct KvCounters {
  uint64_t queries = 0;       // Open calls that found a place.
  uint64_t query_tokens = 0;  // Their prompt tokens.
  uint64_t hits = 0;          // Those that reused anything.
  uint64_t hit_tokens = 0;    // Tokens they reused.
  uint64_t committed_tokens = 0;
  uint64_t published_nodes = 0;  // Blocks of group 0 that others can find from then on.
  uint64_t duplicate_nodes = 0;  // Full blocks computed though the cache had them already.
  uint64_t copies = 0;           // Blocks copied by copy-on-write, all groups.
  uint64_t taken_leaves = 0;     // Cached partial blocks that were written on in place.
  uint64_t moves = 0;            // Blocks moved to make or find room, all groups,
  uint64_t moved_bytes = 0;      // and the bytes copied for it.
  uint64_t failed_reserves = 0;
  uint64_t broken_pins = 0;                        // Given up for a sequence that ran alone.
  std::array<uint64_t, kMaxKvGroups> evictions{};  // Blocks, by group.
};

// The memory of the moment, in bytes of all groups.
struct KvUsage {
  uint64_t total = 0;         // total = reserved + free.
  uint64_t reserved = 0;      // Held by sequences or by what is cached.
  uint64_t used = 0;          // Of the reserved: slots that hold the KV of a token.
  uint64_t idle = 0;          // Of the reserved: cached, needed by no running sequence or pin.
  uint64_t pinned = 0;        // Of the reserved: kept by pins.
  uint64_t largest_free = 0;  // Longest run of free memory that one sequence could get.
  uint64_t wasted() const { return reserved - used; }  // Internal: reserved, and holds nothing.
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_USAGE_H_
