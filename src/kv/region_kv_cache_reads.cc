// RegionKvCache, what only reads: usage, what is cached, invariants.
#include <algorithm>

#include "base/check.h"
#include "kv/region_kv_cache.h"

namespace kvasir {

bool RegionKvCache::FitsTogether(std::span<const KvDemand> demands, uint32_t) const {
  uint64_t more = 0;
  for (const KvDemand& demand : demands) {
    const uint32_t needed = BlocksFor(std::min(demand.tokens, max_sequence_tokens()));
    const uint32_t blocks = At(demand.id).blocks();
    more += needed > blocks ? needed - blocks : 0;
  }
  // Compaction gets all that is free behind any one region.
  return more <= uint64_t{pool_.free_count()} + idle_;
}

uint32_t RegionKvCache::most_tokens_alone() const {
  const uint64_t tokens = uint64_t{pool_.block_count()} * layout().block_tokens;
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, max_sequence_tokens()));
}

KvUsage RegionKvCache::usage() const {
  const uint64_t block_tokens = layout().block_tokens;
  const uint64_t block_bytes = layout().bytes_per_token() * block_tokens;
  uint64_t owned = 0, tokens = 0;
  for (const Entry& entry : entries_) {
    owned += entry.own_count();
    const uint64_t held = entry.tokens.size();
    tokens += held - std::min(held, entry.borrowed * block_tokens);
  }
  const uint64_t taken = pool_.block_count() - pool_.free_count();
  // Those that outlived their region, because others have them in their tables, are full.
  tokens += (taken - owned) * block_tokens;
  KvUsage usage;
  usage.total = pool_.block_count() * block_bytes;
  usage.reserved = taken * block_bytes;
  usage.used = tokens * layout().bytes_per_token();
  usage.idle = idle_ * block_bytes;
  usage.largest_free = pool_.largest_run() * block_bytes;
  return usage;
}

std::optional<KvDivergence> RegionKvCache::DivergedAt(const BlockHash& root,
                                                      std::span<const TokenId> tokens) const {
  const Entry* best = nullptr;
  uint32_t best_common = 0;
  for (const Entry& entry : entries_) {
    if (entry.state == State::kEmpty || entry.root != root) continue;
    const std::span<const TokenId> found = Findable(entry);
    const auto end = std::mismatch(found.begin(), found.end(), tokens.begin(), tokens.end());
    const uint32_t common = static_cast<uint32_t>(end.first - found.begin());
    if (common == 0 || common < best_common) continue;
    const bool goes_on = end.first != found.end();
    // Of equally long ones one that goes on, the newest.
    if (common == best_common && best != nullptr &&
        (!goes_on || (best->tokens.size() > common && best->last_use > entry.last_use))) {
      continue;
    }
    best = &entry;
    best_common = common;
  }
  if (best == nullptr || best_common == tokens.size()) return std::nullopt;
  const std::span<const TokenId> rest = Findable(*best).subspan(best_common);
  if (rest.empty()) return std::nullopt;
  KvDivergence divergence;
  divergence.at = best_common;
  divergence.cached_count = static_cast<uint32_t>(std::min(rest.size(), divergence.cached.size()));
  std::copy_n(rest.begin(), divergence.cached_count, divergence.cached.begin());
  return divergence;
}

uint32_t RegionKvCache::Continuation(SequenceId id, std::span<const TokenId> next,
                                     std::span<TokenId> out) const {
  const Entry& sequence = At(id);
  const std::span<const TokenId> computed = std::span(sequence.tokens).first(sequence.computed);
  const size_t known = computed.size() + next.size();
  const Entry* best = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.state == State::kEmpty || &entry == &sequence || entry.root != sequence.root) {
      continue;
    }
    const std::span<const TokenId> found = Findable(entry);
    if (found.size() <= known) continue;
    // From the end: conversations that begin alike are told apart there soonest.
    const std::span<const TokenId> last = found.first(known).last(next.size());
    if (!std::equal(next.rbegin(), next.rend(), last.rbegin()) ||
        !std::equal(computed.rbegin(), computed.rend(), found.first(computed.size()).rbegin())) {
      continue;
    }
    if (best == nullptr || entry.last_use > best->last_use) best = &entry;
  }
  if (best == nullptr) return 0;
  const std::span<const TokenId> rest = Findable(*best).subspan(known);
  const size_t count = std::min(rest.size(), out.size());
  std::copy_n(rest.begin(), count, out.begin());
  return static_cast<uint32_t>(count);
}

void RegionKvCache::CheckEntry(const Entry& entry) const {
  if (entry.state == State::kEmpty) {
    KV_CHECK_EQ(entry.blocks(), 0u);
    KV_CHECK(entry.tokens.empty());
    return;
  }
  KV_CHECK_LE(entry.borrowed, entry.blocks());
  KV_CHECK_LE(entry.computed, entry.tokens.size());
  KV_CHECK_GE(entry.blocks(), BlocksFor(static_cast<uint32_t>(entry.tokens.size())));
  KV_CHECK_GE(entry.blocks(), BlocksFor(entry.computed + entry.reserved));
  KV_CHECK(entry.state == State::kRunning || entry.reserved == 0);
  // Borrowed blocks are full.
  KV_CHECK_LE(uint64_t{entry.borrowed} * layout().block_tokens, entry.tokens.size());
  for (size_t group = 0; group < arenas_.size(); ++group) {
    const BlockTable& table = entry.tables[group];
    table.CheckInvariants();
    KV_CHECK_EQ(table.size(), entry.blocks());
    KV_CHECK_EQ(table.first_held(), 0u);
    for (uint32_t i = 0; i < table.size(); ++i) {
      KV_CHECK_EQ(table.id(i), entry.tables[0].id(i));
      KV_CHECK_EQ(table.addresses()[i], arenas_[group].address(table.id(i)));
      if (i > entry.borrowed) KV_CHECK_EQ(Index(table.id(i)), Index(table.id(i - 1)) + 1);
    }
  }
  // What may be written now has one owner, and only full blocks have more than one.
  for (uint32_t i = 0; i < entry.blocks(); ++i) {
    const uint32_t block = Index(entry.tables[0].id(i));
    KV_CHECK(entry.reserved == 0 || i < entry.computed / layout().block_tokens ||
             refs_[block] == 1);
    KV_CHECK(refs_[block] == 1 || (uint64_t{i} + 1) * layout().block_tokens <= entry.tokens.size());
  }
}

void RegionKvCache::CheckInvariants() const {
  pool_.CheckInvariants();
  std::vector<uint32_t> refs(pool_.block_count(), 0), busy(pool_.block_count(), 0);
  std::vector<bool> owned(pool_.block_count(), false);
  uint32_t running = 0, idle = 0, taken = 0;
  for (const Entry& entry : entries_) {
    CheckEntry(entry);
    running += entry.state == State::kRunning;
    for (uint32_t i = 0; i < entry.blocks(); ++i) {
      const uint32_t block = Index(entry.tables[0].id(i));
      ++refs[block];
      busy[block] += entry.state == State::kRunning;
      if (i < entry.borrowed) continue;
      KV_CHECK(!owned[block]);
      owned[block] = true;
    }
  }
  for (uint32_t i = 0; i < pool_.block_count(); ++i) {
    KV_CHECK_EQ(refs[i], refs_[i].load());
    KV_CHECK_EQ(busy[i], busy_[i]);
    idle += refs[i] > 0 && busy[i] == 0;
    taken += refs[i] > 0;
  }
  for (const Region& run : pool_.runs()) {
    for (uint32_t i = run.first; i < run.end(); ++i) KV_CHECK_EQ(refs[i], 0u);
  }
  KV_CHECK_EQ(taken + pool_.free_count(), pool_.block_count());
  KV_CHECK_EQ(idle, idle_);
  KV_CHECK_EQ(running, running_);
}

}  // namespace kvasir
