#include "kv/static_kv_cache.h"

#include <algorithm>

namespace kvasir {
namespace {
// More slots than this are of no use, and each costs its table.
constexpr uint32_t kMaxIdleSlots = 256;
}  // namespace

StatusOr<std::unique_ptr<KvCache>> StaticKvCache::Create(const Options& options) {
  const uint32_t block_tokens = options.layout.block_tokens;
  const uint32_t region = (options.max_sequence_tokens + block_tokens - 1) / block_tokens;
  KV_ASSIGN_OR_RETURN(const uint32_t blocks, BlocksOf(options, region));
  const uint32_t slots = std::min(blocks / region, options.max_sequences + kMaxIdleSlots);
  KV_ASSIGN_OR_RETURN(std::vector<BlockArena> arenas, MapArenas(options, slots * region));
  return std::unique_ptr<KvCache>(
      new StaticKvCache(options, std::move(arenas), slots * region, slots));
}

}  // namespace kvasir
