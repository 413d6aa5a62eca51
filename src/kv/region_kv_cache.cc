#include "kv/region_kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kvasir {

StatusOr<uint32_t> RegionKvCache::BlocksOf(const Options& options, uint64_t least) {
  const KvLayout& layout = options.layout;
  const uint64_t set_bytes = uint64_t{layout.bytes_per_token()} * layout.block_tokens;
  uint64_t blocks = std::min(options.memory_bytes / set_bytes, kMaxKvBlocks);
  if (!options.block_counts.empty()) {
    if (options.block_counts.size() != layout.groups.size()) {
      return InvalidArgument("KV block counts for {} groups, but the layout has {}",
                             options.block_counts.size(), layout.groups.size());
    }
    // A region is the same blocks of all groups: more of one are of no use.
    blocks = *std::min_element(options.block_counts.begin(), options.block_counts.end());
  }
  if (blocks < least || blocks > kMaxKvBlocks) {
    return InvalidArgument(
        "KV memory of {} bytes is too small for one region of {} tokens, which needs {} bytes; "
        "give more memory or a shorter context",
        blocks * set_bytes, least * layout.block_tokens, least * set_bytes);
  }
  return static_cast<uint32_t>(blocks);
}

StatusOr<std::vector<BlockArena>> RegionKvCache::MapArenas(const Options& options,
                                                           uint32_t blocks) {
  std::vector<BlockArena> arenas;
  for (uint32_t group = 0; group < options.layout.group_count(); ++group) {
    KV_ASSIGN_OR_RETURN(BlockArena arena,
                        BlockArena::Create(blocks, options.layout.block_bytes(group)));
    arenas.push_back(std::move(arena));
  }
  return arenas;
}

RegionKvCache::RegionKvCache(const Options& options, std::vector<BlockArena> arenas,
                             uint32_t blocks, uint32_t entries)
    : KvCache(options),
      arenas_(std::move(arenas)),
      pool_(blocks),
      refs_(blocks),
      busy_(blocks, 0),
      entries_(entries),
      max_running_(options.max_sequences) {
  for (Entry& entry : entries_) {
    entry.tokens.reserve(max_sequence_tokens());
    for (size_t group = 0; group < arenas_.size(); ++group) {
      entry.tables.emplace_back(CapacityBlocks());
    }
  }
}

RegionKvCache::~RegionKvCache() = default;

RegionKvCache::Entry& RegionKvCache::At(SequenceId id) {
  return const_cast<Entry&>(static_cast<const RegionKvCache*>(this)->At(id));
}

const RegionKvCache::Entry& RegionKvCache::At(SequenceId id) const {
  KV_CHECK_LT(Index(id), entries_.size());
  const Entry& entry = entries_[Index(id)];
  KV_CHECK(entry.state == State::kRunning);
  return entry;
}

uint32_t RegionKvCache::computed(SequenceId id) const { return At(id).computed; }
uint32_t RegionKvCache::reserved(SequenceId id) const { return At(id).reserved; }

const BlockTable& RegionKvCache::table(SequenceId id, uint32_t group) const {
  KV_CHECK_LT(group, arenas_.size());
  return At(id).tables[group];
}

uint32_t RegionKvCache::truncate_floor(SequenceId id) const {
  const Entry& entry = At(id);
  return std::max(TruncateFloor(entry), tails().quantized(id, 0));
}

uint32_t RegionKvCache::TruncateFloor(const Entry& entry) const {
  return std::max(entry.computed / layout().block_tokens * layout().block_tokens, entry.begun_with);
}

// The longest match; of equally long ones that which loses the fewest tokens if it is taken over.
RegionKvCache::Match RegionKvCache::FindMatch(const BlockHash& root,
                                              std::span<const TokenId> tokens) const {
  KV_CHECK_LE(tokens.size(), max_sequence_tokens());
  Match best;
  if (tokens.size() < 2) return best;
  const std::span<const TokenId> wanted = tokens.first(tokens.size() - 1);
  size_t best_beyond = 0;
  for (const Entry& entry : entries_) {
    const bool eligible =
        entry.state == State::kKept || (entry.state == State::kRunning && MatchesRunning());
    if (!eligible || entry.root != root) continue;
    const std::span<const TokenId> found = Findable(entry);
    const auto end = std::mismatch(found.begin(), found.end(), wanted.begin(), wanted.end());
    const uint32_t common = Reusable(static_cast<uint32_t>(end.first - found.begin()));
    const size_t beyond = found.size() - common;
    if (common == 0 || common < best.tokens) continue;
    if (common == best.tokens) {
      if (beyond > best_beyond) continue;
      if (beyond == best_beyond && entry.state == State::kRunning) continue;
    }
    best = {const_cast<Entry*>(&entry), common};
    best_beyond = beyond;
  }
  return best;
}

uint32_t RegionKvCache::MatchTokens(const BlockHash& root, std::span<const TokenId> tokens) const {
  return FindMatch(root, tokens).tokens;
}

std::optional<SequenceId> RegionKvCache::Open(const BlockHash& root,
                                              std::span<const TokenId> prompt,
                                              uint32_t most_tokens) {
  if (running_ == max_running_) return std::nullopt;
  Match match = FindMatch(root, prompt);
  const uint32_t wanted = WantedBlocks(static_cast<uint32_t>(prompt.size()),
                                       std::min(most_tokens, max_sequence_tokens()));
  ++running_;
  Entry* const entry = Place(&match, wanted);
  if (entry == nullptr) {
    --running_;
    return std::nullopt;
  }
  if (entry != match.entry) {
    entry->tokens.assign(prompt.begin(), prompt.begin() + match.tokens);
    entry->root = root;
  }
  entry->computed = match.tokens;
  entry->begun_with = match.tokens;
  entry->wanted = wanted;
  tails().Begin(IdOf(*entry), match.tokens);
  ++counters_.queries;
  counters_.query_tokens += prompt.size();
  if (match.tokens > 0) ++counters_.hits;
  counters_.hit_tokens += match.tokens;
  return IdOf(*entry);
}

RegionKvCache::Entry* RegionKvCache::Place(Match* match, uint32_t wanted) {
  if (match->entry == nullptr) return NewEntry(wanted, nullptr, 0);
  Activate(*match->entry);
  if (Grow(*match->entry, wanted, /*compact=*/true)) return match->entry;
  Deactivate(*match->entry);
  return nullptr;
}

bool RegionKvCache::Reserve(SequenceId id, uint32_t token_count) {
  Entry& entry = At(id);
  KV_CHECK_LE(token_count, max_sequence_tokens() - entry.computed);
  entry.reserved = 0;
  if (token_count == 0) return true;
  const uint32_t needed = BlocksFor(entry.computed + token_count);
  if (needed > entry.blocks()) {
    // By half at least: then a token is moved twice on the average, however long it gets.
    const uint32_t roomy = std::min(CapacityBlocks(), entry.blocks() + entry.blocks() / 2);
    const bool grown = (roomy > needed && Grow(entry, roomy, /*compact=*/false)) ||
                       Grow(entry, needed, /*compact=*/true);
    if (!grown) {
      ++counters_.failed_reserves;
      return false;
    }
  }
  // Written to from now on: of a region that was taken over goes what it has too much.
  entry.tokens.resize(entry.computed);
  if (entry.wanted > 0) Shrink(entry, std::max(entry.wanted, needed));
  entry.wanted = 0;
  entry.reserved = token_count;
  return true;
}

void RegionKvCache::Commit(SequenceId id, std::span<const TokenId> tokens) {
  Entry& entry = At(id);
  KV_CHECK_LE(tokens.size(), entry.reserved);
  const uint32_t full_before = entry.computed / layout().block_tokens;
  entry.reserved = 0;
  entry.tokens.insert(entry.tokens.end(), tokens.begin(), tokens.end());
  entry.computed += static_cast<uint32_t>(tokens.size());
  counters_.committed_tokens += tokens.size();
  if (!tokens.empty()) tails().Advance(id, entry.computed);
  if (MatchesRunning()) {
    counters_.published_nodes += entry.computed / layout().block_tokens - full_before;
  }
}

void RegionKvCache::Truncate(SequenceId id, uint32_t token_count) {
  Entry& entry = At(id);
  KV_CHECK_GE(token_count, truncate_floor(id));
  KV_CHECK_LE(token_count, entry.computed);
  entry.reserved = 0;
  entry.computed = token_count;
  entry.tokens.resize(token_count);
}

std::optional<SequenceId> RegionKvCache::Fork(SequenceId id) {
  Entry& source = At(id);
  if (running_ == max_running_) return std::nullopt;
  ++running_;
  Entry* const entry = PlaceFork(source);
  if (entry == nullptr) {
    --running_;
    return std::nullopt;
  }
  source.reserved = 0;
  entry->root = source.root;
  entry->tokens.assign(source.tokens.begin(), source.tokens.begin() + source.computed);
  entry->computed = source.computed;
  entry->begun_with = source.computed;
  tails().Fork(id, IdOf(*entry));
  return IdOf(*entry);
}

RegionKvCache::Entry* RegionKvCache::PlaceFork(Entry& source) {
  Entry* const entry = NewEntry(source.blocks(), nullptr, 0);
  if (entry == nullptr) return nullptr;
  for (uint32_t i = 0; i < BlocksFor(source.computed); ++i) CopyBlock(source, *entry, i);
  return entry;
}

void RegionKvCache::Close(SequenceId id) {
  Entry& entry = At(id);
  entry.reserved = 0;
  --running_;
  // What was never written to has the tokens of the kept one that it was, all of them final.
  if (entry.tokens.size() == entry.computed) entry.tokens.resize(FinalTokens(entry));
  tails().End(id);
  if (!MatchesRunning()) {
    counters_.published_nodes +=
        entry.computed / layout().block_tokens - entry.begun_with / layout().block_tokens;
  }
  if (entry.tokens.empty() || !WorthKeeping(entry)) {
    Drop(entry);
    return;
  }
  Shrink(entry, KeptBlocks(static_cast<uint32_t>(entry.tokens.size())));
  Deactivate(entry);
}

uint32_t RegionKvCache::EvictAll() {
  const uint32_t before = pool_.free_count();
  for (Entry& entry : entries_) {
    if (entry.state == State::kKept) Drop(entry);
  }
  return pool_.free_count() - before;
}

}  // namespace kvasir
