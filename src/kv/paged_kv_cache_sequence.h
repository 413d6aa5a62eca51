// The inside of KvCache that its .cc files share; nobody else includes it.
#ifndef KVASIR_KV_PAGED_KV_CACHE_SEQUENCE_H_
#define KVASIR_KV_PAGED_KV_CACHE_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "kv/paged_kv_cache.h"

namespace kvasir {

// A running sequence. Its published blocks, those before tail_tokens, are exactly the blocks of the
// nodes from `root` to `tail`: all that are full, or, of a staged layout, quantized.
struct PagedKvCache::Sequence {
  bool open = false;
  NodeId root = kNoNode;
  NodeId tail = kNoNode;             // Node of the last of them; `root` when there is none.
  uint32_t computed = 0;             // Tokens with KV.
  uint32_t reserved = 0;             // Writable slots after them.
  uint32_t begun_with = 0;           // `computed` at Open or Fork.
  uint32_t prompt_blocks = 0;        // Whole blocks of the prompt; 0 for a fork.
  std::vector<BlockTable> tables;    // [group]; all of one size.
  std::vector<TokenId> tail_tokens;  // Computed after `tail`: less than a block, or one if staged.
};

// What Reserve takes from one group.
struct PagedKvCache::Demand {
  uint32_t fresh = 0;  // New blocks at the table's end.
  bool copy = false;   // The partial block is shared: copy it.
  bool take = false;   // The partial block is shared with the tree only, which gives it up.
};

}  // namespace kvasir

#endif  // KVASIR_KV_PAGED_KV_CACHE_SEQUENCE_H_
