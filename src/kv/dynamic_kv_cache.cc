#include "kv/dynamic_kv_cache.h"

#include <algorithm>

namespace kvasir {

StatusOr<std::unique_ptr<KvCache>> DynamicKvCache::Create(const Options& options) {
  KV_ASSIGN_OR_RETURN(const uint32_t blocks, BlocksOf(options, /*least=*/1));
  KV_ASSIGN_OR_RETURN(std::vector<BlockArena> arenas, MapArenas(options, blocks));
  return std::unique_ptr<KvCache>(new DynamicKvCache(options, std::move(arenas), blocks));
}

uint32_t DynamicKvCache::WantedBlocks(uint32_t tokens, uint32_t most_tokens) const {
  // Without a limit a block of room: the first growth then comes with the answer.
  const uint32_t least = most_tokens > 0 ? tokens : tokens + layout().block_tokens;
  return std::clamp(BlocksFor(std::max(least, most_tokens)), 1u,
                    std::min(CapacityBlocks(), block_count(0)));
}

}  // namespace kvasir
