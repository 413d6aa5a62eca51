// SharedKvCache: `--kv-strategy shared`: dynamic, and sequences share their common prefixes, also
// while they run.
//
// The first blocks of a sequence may be those of another one's region: its table points there, and
// the blocks are counted (RegionKvCache::references). Shared are whole blocks, which nobody writes
// any more; of a block that is common in part the second sequence gets a copy at once, since it
// writes its next token there (copy-on-write, made when the region is). A full block of a running
// sequence can be found at once, so others need not compute it again (in-flight dedupe works).
// When a sequence goes, the blocks of its region that others still have stay, the rest is free.
// A kept sequence that a prompt continues as a whole is taken over, as in dynamic; one that the
// prompt leaves earlier is shared and stays whole.
#ifndef KVASIR_KV_SHARED_KV_CACHE_H_
#define KVASIR_KV_SHARED_KV_CACHE_H_

#include <memory>
#include <utility>
#include <vector>

#include "kv/dynamic_kv_cache.h"

namespace kvasir {

class SharedKvCache final : public DynamicKvCache {
 public:
  // As KvCache::Create.
  static StatusOr<std::unique_ptr<KvCache>> Create(const Options& options);

  bool shares_running() const override { return true; }

 private:
  SharedKvCache(const Options& options, std::vector<BlockArena> arenas, uint32_t blocks)
      : DynamicKvCache(options, std::move(arenas), blocks) {}
  bool MatchesRunning() const override { return true; }
  Entry* Place(Match* match, uint32_t wanted) override;
  Entry* PlaceFork(Entry& source) override;
  bool WorthKeeping(const Entry& entry) override;
};

}  // namespace kvasir

#endif  // KVASIR_KV_SHARED_KV_CACHE_H_
