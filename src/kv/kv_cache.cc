#include "kv/kv_cache.h"

namespace kvasir {

KvEviction KvCache::eviction() const { return {}; }

void KvCache::SetDepthCost(double) {}

}  // namespace kvasir
