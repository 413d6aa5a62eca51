#include "kv/kv_listing.h"

namespace kvasir {

void KvListing::AdvanceTo(TimeUs) {}

KvPage KvListing::ListCached(const BlockHash&, KvCursor, std::span<KvCachedEntry>) const {
  return {};
}

uint32_t KvListing::CachedTokens(const BlockHash&, const BlockHash&, std::span<TokenId>) const {
  return 0;
}

KvPin KvListing::PinCached(const BlockHash&, std::span<const TokenId>, KvPinTerms) { return {}; }

KvPin KvListing::PinCached(const BlockHash&, const BlockHash&, KvPinTerms) { return {}; }

bool KvListing::UnpinCached(const BlockHash&, const BlockHash&) { return false; }

KvCleared KvListing::ClearCached(const BlockHash&, KvCursor, uint32_t) { return {}; }

}  // namespace kvasir
