#include "kv/shared_kv_cache.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir {

StatusOr<std::unique_ptr<KvCache>> SharedKvCache::Create(const Options& options) {
  KV_ASSIGN_OR_RETURN(const uint32_t blocks, BlocksOf(options, /*least=*/1));
  KV_ASSIGN_OR_RETURN(std::vector<BlockArena> arenas, MapArenas(options, blocks));
  return std::unique_ptr<KvCache>(new SharedKvCache(options, std::move(arenas), blocks));
}

RegionKvCache::Entry* SharedKvCache::Place(Match* match, uint32_t wanted) {
  Entry* const donor = match->entry;
  const bool kept = donor != nullptr && donor->state == State::kKept;
  if (donor == nullptr || (kept && match->tokens == donor->tokens.size())) {
    return RegionKvCache::Place(match, wanted);
  }
  const uint32_t whole = match->tokens / layout().block_tokens;
  if (match->tokens % layout().block_tokens != 0) {
    if (kept) Activate(*donor);  // Its partial block is needed until it is copied.
    Entry* const entry = NewEntry(wanted, donor, whole);
    if (entry != nullptr) CopyBlock(*donor, *entry, whole);
    if (kept) Deactivate(*donor);
    if (entry != nullptr || !kept) return entry;
    // Perhaps the donor itself is in the way.
    match->tokens = whole * layout().block_tokens;
  }
  return NewEntry(wanted, donor, whole);
}

RegionKvCache::Entry* SharedKvCache::PlaceFork(Entry& source) {
  // A block that is full but not quantized is not final: there is at most one.
  const uint32_t whole = FinalTokens(source) / layout().block_tokens;
  Entry* const entry = NewEntry(source.blocks(), &source, whole);
  if (entry == nullptr) return nullptr;
  if (whole < BlocksFor(source.computed)) CopyBlock(source, *entry, whole);
  return entry;
}

bool SharedKvCache::WorthKeeping(const Entry& entry) {
  const std::span<const TokenId> tokens = entry.tokens;
  for (Entry& other : entries()) {
    if (&other == &entry || other.state == State::kEmpty || other.root != entry.root) continue;
    // What a running one may still take back is not kept by it.
    const std::span<const TokenId> found =
        other.state == State::kRunning
            ? Findable(other).first(std::min<size_t>(FinalTokens(other), TruncateFloor(other)))
            : Findable(other);
    const size_t common = std::min(found.size(), tokens.size());
    if (!std::equal(found.begin(), found.begin() + static_cast<ptrdiff_t>(common),
                    tokens.begin())) {
      continue;
    }
    if (common == tokens.size()) return false;
    if (other.state == State::kKept) Drop(other);
  }
  return true;
}

}  // namespace kvasir
