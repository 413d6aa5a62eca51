// For tests: fills KV slots with a digest of the exact prefix, and checks what a sequence may read,
// so that a stale, foreign or overwritten slot never goes unnoticed.
#ifndef KVASIR_KV_DIGEST_BLOCKS_H_
#define KVASIR_KV_DIGEST_BLOCKS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/rng.h"
#include "kv/kv_cache.h"

namespace kvasir {

// [i]: digest of `salt` and tokens [0, i].
inline std::vector<uint64_t> PrefixDigests(uint64_t salt, std::span<const TokenId> tokens) {
  std::vector<uint64_t> digests;
  uint64_t digest = Mix64(salt);
  for (const TokenId token : tokens) {
    digest = Mix64(digest ^ static_cast<uint64_t>(Index(token) + 1));
    digests.push_back(digest);
  }
  return digests;
}

// What (layer slot, head) of a group holds for a digest: 16 bits per channel, period 4.
inline uint16_t SlotValue(uint64_t digest, uint32_t group, uint32_t layer, uint32_t head,
                          uint32_t channel, bool is_k) {
  const uint64_t place = ((group * 64 + layer) * 64 + head) * 2 + (is_k ? 1 : 0);
  return static_cast<uint16_t>(Mix64(digest + place) >> (channel % 4 * 16));
}

// Calls visit(address of a 16-bit element, its value) for all of one slot.
template <typename Visit>
void VisitSlot(const KvLayout& layout, uint32_t group, std::byte* block, uint32_t slot,
               uint64_t digest, Visit&& visit) {
  const KvGroup& g = layout.groups[group];
  const uint32_t unit = slot / kKvUnitTokens;
  const uint32_t lane = slot % kKvUnitTokens;
  const size_t unit_elements = size_t{g.head_dim} * kKvUnitTokens;
  for (uint32_t layer = 0; layer < g.layers.size(); ++layer) {
    for (uint32_t head = 0; head < g.kv_heads; ++head) {
      std::byte* const k = block + layout.k_offset(group, layer, head);
      std::byte* const v = block + layout.v_offset(group, layer, head);
      for (uint32_t c = 0; c < g.head_dim; ++c) {
        visit(k + 2 * (unit * unit_elements + c * kKvUnitTokens + lane),
              SlotValue(digest, group, layer, head, c, true));
        visit(v + 2 * (unit * unit_elements + size_t{lane} * g.head_dim + c),
              SlotValue(digest, group, layer, head, c, false));
      }
    }
  }
}

// What the forward pass does to positions [computed, computed + digests.size()).
inline void WriteDigests(const KvCache& cache, SequenceId id, std::span<const uint64_t> digests) {
  const uint32_t block_tokens = cache.layout().block_tokens;
  for (uint32_t group = 0; group < cache.layout().group_count(); ++group) {
    for (uint32_t i = 0; i < digests.size(); ++i) {
      const uint32_t position = cache.computed(id) + i;
      std::byte* const block = cache.table(id, group).addresses()[position / block_tokens];
      ASSERT_NE(block, nullptr);
      VisitSlot(cache.layout(), group, block, position % block_tokens, digests[i],
                [](std::byte* to, uint16_t value) { std::memcpy(to, &value, sizeof(value)); });
    }
  }
}

// Whether every slot that the query at position computed(id) may read holds its digest.
// `digests` are those of the sequence's tokens.
inline void CheckDigests(const KvCache& cache, SequenceId id, std::span<const uint64_t> digests) {
  const uint32_t block_tokens = cache.layout().block_tokens;
  const uint32_t computed = cache.computed(id);
  ASSERT_LE(computed, digests.size());
  for (uint32_t group = 0; group < cache.layout().group_count(); ++group) {
    const uint32_t window = cache.layout().groups[group].window;
    const uint32_t first = window == 0 || computed < window ? 0 : computed + 1 - window;
    for (uint32_t position = first; position < computed; ++position) {
      std::byte* const block = cache.table(id, group).addresses()[position / block_tokens];
      ASSERT_NE(block, nullptr) << "group " << group << " position " << position;
      bool equal = true;
      VisitSlot(cache.layout(), group, block, position % block_tokens, digests[position],
                [&](const std::byte* from, uint16_t value) {
                  equal &= std::memcmp(from, &value, sizeof(value)) == 0;
                });
      ASSERT_TRUE(equal) << "group " << group << " position " << position << " of " << computed;
    }
  }
}

}  // namespace kvasir

#endif  // KVASIR_KV_DIGEST_BLOCKS_H_
