#include "kv/kv_cache.h"

namespace kvasir {

// What strategies without these say.

void KvCache::AdvanceTo(TimeUs) {}

KvPage KvCache::ListCached(const BlockHash&, KvCursor, std::span<KvCachedEntry>) const {
  return {};
}

uint32_t KvCache::CachedTokens(const BlockHash&, const BlockHash&, std::span<TokenId>) const {
  return 0;
}

KvPin KvCache::PinCached(const BlockHash&, std::span<const TokenId>, TimeUs) { return {}; }

KvPin KvCache::PinCached(const BlockHash&, const BlockHash&, TimeUs) { return {}; }

bool KvCache::UnpinCached(const BlockHash&, const BlockHash&) { return false; }

KvEviction KvCache::eviction() const { return {}; }

void KvCache::SetDepthCost(double) {}

KvCleared KvCache::ClearCached(const BlockHash&, KvCursor, uint32_t) { return {}; }

}  // namespace kvasir
