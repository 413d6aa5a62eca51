// DynamicKvCache: `--kv-strategy dynamic`: every sequence has one region of the length it needs.
//
// That is prompt and answer where the client has set a limit; where it has not, the prompt and some
// room, and the region grows by half whenever it is full: in place if what follows is free, else by
// a move. A finished sequence keeps what it has filled. Everything else is RegionKvCache's: best
// fit, coalescing, reuse of finished sequences, compaction.
// Sequences that run at once share nothing: each computes and stores its prefix for itself.
#ifndef KVASIR_KV_DYNAMIC_KV_CACHE_H_
#define KVASIR_KV_DYNAMIC_KV_CACHE_H_

#include <memory>
#include <utility>
#include <vector>

#include "kv/region_kv_cache.h"

namespace kvasir {

class DynamicKvCache : public RegionKvCache {
 public:
  // Finished sequences that are kept beside max_sequences running ones: each has a token list and
  // tables of the longest sequence, and every Open looks at them all.
  static constexpr uint32_t kMostKept = 256;

  // As KvCache::Create.
  static StatusOr<std::unique_ptr<KvCache>> Create(const Options& options);

 protected:
  DynamicKvCache(const Options& options, std::vector<BlockArena> arenas, uint32_t blocks)
      : RegionKvCache(options, std::move(arenas), blocks, options.max_sequences + kMostKept) {}
  uint32_t WantedBlocks(uint32_t tokens, uint32_t most_tokens) const override;
};

}  // namespace kvasir

#endif  // KVASIR_KV_DYNAMIC_KV_CACHE_H_
