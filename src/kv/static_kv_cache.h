// StaticKvCache: `--kv-strategy static`: every slot has a region of the longest sequence.
//
// As many slots as the memory holds; a sequence takes one, short or long, so that nothing ever
// fails or moves once it has begun, and most of the memory holds nothing. A finished slot keeps its
// sequence: Open takes the idle slot with the longest common prefix with the prompt (of equals the
// one that loses least), else an empty one, else the least recently used.
// region_kv_cache.h says how the window group lies.
#ifndef KVASIR_KV_STATIC_KV_CACHE_H_
#define KVASIR_KV_STATIC_KV_CACHE_H_

#include <memory>
#include <utility>
#include <vector>

#include "kv/region_kv_cache.h"

namespace kvasir {

class StaticKvCache final : public RegionKvCache {
 public:
  // As KvCache::Create; kInvalidArgument when not even one region fits.
  static StatusOr<std::unique_ptr<KvCache>> Create(const Options& options);

 private:
  StaticKvCache(const Options& options, std::vector<BlockArena> arenas, uint32_t blocks,
                uint32_t slots)
      : RegionKvCache(options, std::move(arenas), blocks, slots) {}
  uint32_t WantedBlocks(uint32_t, uint32_t) const override { return CapacityBlocks(); }
  uint32_t KeptBlocks(uint32_t) const override { return CapacityBlocks(); }
};

}  // namespace kvasir

#endif  // KVASIR_KV_STATIC_KV_CACHE_H_
