#include "kv/kv_strategy.h"

#include "kv/dynamic_kv_cache.h"
#include "kv/kv_cache.h"
#include "kv/paged_kv_cache.h"
#include "kv/shared_kv_cache.h"
#include "kv/static_kv_cache.h"

namespace kvasir {
namespace {

struct Entry {
  KvStrategy strategy;
  std::string_view name;
  StatusOr<std::unique_ptr<KvCache>> (*create)(const KvCache::Options& options);
};

constexpr Entry kEntries[] = {
    {KvStrategy::kStatic, "static", StaticKvCache::Create},
    {KvStrategy::kDynamic, "dynamic", DynamicKvCache::Create},
    {KvStrategy::kShared, "shared", SharedKvCache::Create},
    {KvStrategy::kPaged, "paged", PagedKvCache::Create},
};

}  // namespace

std::string_view KvStrategyName(KvStrategy strategy) {
  for (const Entry& entry : kEntries) {
    if (entry.strategy == strategy) return entry.name;
  }
  return "unknown";
}

std::optional<KvStrategy> KvStrategyFromName(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.strategy;
  }
  return std::nullopt;
}

std::vector<KvStrategy> AllKvStrategies() {
  std::vector<KvStrategy> all;
  for (const Entry& entry : kEntries) all.push_back(entry.strategy);
  return all;
}

StatusOr<std::unique_ptr<KvCache>> KvCache::Create(const Options& options) {
  KV_RETURN_IF_ERROR(options.layout.Validate());
  if (options.max_sequences == 0 || options.max_sequences > 65536) {
    return InvalidArgument("at most {} sequences at once; 1 to 65536 are possible",
                           options.max_sequences);
  }
  if (options.max_sequence_tokens == 0 || options.max_sequence_tokens > (1u << 30)) {
    return InvalidArgument("sequences of at most {} tokens; 1 to {} are possible",
                           options.max_sequence_tokens, 1u << 30);
  }
  // Tails are part of the memory.
  const uint64_t tail_bytes = TailStore::SlotBytes(options.layout) * options.max_sequences;
  if (options.block_counts.empty() && options.memory_bytes <= tail_bytes) {
    return InvalidArgument(
        "KV memory of {} bytes cannot hold the newest keys of {} sequences, {} bytes; give more "
        "memory or allow fewer sequences",
        options.memory_bytes, options.max_sequences, tail_bytes);
  }
  Options rest = options;
  if (rest.block_counts.empty()) rest.memory_bytes -= tail_bytes;
  for (const Entry& entry : kEntries) {
    if (entry.strategy != options.strategy) continue;
    KV_ASSIGN_OR_RETURN(std::unique_ptr<KvCache> cache, entry.create(rest));
    KV_ASSIGN_OR_RETURN(
        cache->tails_, TailStore::Create(options.layout, options.max_sequences, cache->id_limit()));
    return cache;
  }
  return InvalidArgument("KV strategy number {} is unknown", static_cast<int>(options.strategy));
}

}  // namespace kvasir
