// What people see of the kept sequences of a RegionKvCache and do to them.
#include <algorithm>

#include "base/check.h"
#include "kv/region_kv_cache.h"

namespace kvasir {

// All entries are looked at at once: there are a few hundred at most.
KvPage RegionKvCache::ListCached(const BlockHash& root, KvCursor from,
                                 std::span<KvCachedEntry> out) const {
  KvPage page;
  uint64_t next = from.at;
  for (; next < entries_.size() && page.count < out.size(); ++next) {
    const Entry& entry = entries_[next];
    if (entry.state != State::kKept || entry.root != root) continue;
    KvCachedEntry& listed = out[page.count++];
    listed = KvCachedEntry{};
    listed.hash = entry.name;
    listed.parent = root;
    listed.tokens = static_cast<uint32_t>(entry.tokens.size());
    listed.bytes = uint64_t{entry.blocks()} * layout().bytes_per_token() * layout().block_tokens;
    listed.uses = entry.uses;
    listed.last_use = entry.used_at;
    const std::span<const BlockId> ids = entry.tables[0].ids();
    listed.busy =
        std::any_of(ids.begin(), ids.end(), [this](BlockId id) { return busy_[Index(id)] > 0; });
  }
  if (next < entries_.size()) page.next = KvCursor{next};
  return page;
}

uint32_t RegionKvCache::CachedTokens(const BlockHash& root, const BlockHash& hash,
                                     std::span<TokenId> out) const {
  for (const Entry& entry : entries_) {
    if (entry.state != State::kKept || entry.root != root || entry.name != hash) continue;
    const size_t count = std::min(entry.tokens.size(), out.size());
    std::copy_n(entry.tokens.begin(), count, out.begin());
    return static_cast<uint32_t>(count);
  }
  return 0;
}

// A page looks at the blocks of dropped sequences; a sequence goes as a whole.
KvCleared RegionKvCache::ClearCached(const BlockHash& root, KvCursor from, uint32_t most) {
  KvCleared cleared;
  const uint32_t before = pool_.free_count();
  uint32_t looked_at = 0;
  uint64_t next = from.at;
  for (; next < entries_.size() && looked_at < most; ++next) {
    Entry& entry = entries_[next];
    if (entry.state != State::kKept || entry.root != root) continue;
    looked_at += entry.blocks();
    Drop(entry);
  }
  cleared.blocks = pool_.free_count() - before;
  if (next < entries_.size()) cleared.next = KvCursor{next};
  return cleared;
}

}  // namespace kvasir
