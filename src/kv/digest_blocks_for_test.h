// For tests: fills KV slots with a digest of the exact prefix, and checks what a sequence may read,
// so that a stale, foreign or overwritten slot never goes unnoticed.
#ifndef KVASIR_KV_DIGEST_BLOCKS_FOR_TEST_H_
#define KVASIR_KV_DIGEST_BLOCKS_FOR_TEST_H_

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

// Whether a layout is one of those that these functions know: f16, or keys staged as int4.
inline bool DigestsFit(const KvLayout& layout) {
  return layout.types.v == KvType::kF16 && (layout.types.k == KvType::kF16 || layout.staged());
}

// Of a quantized K unit a few values of each token stand for all.
inline constexpr uint32_t kStagedChannels = 4;

// Calls visit(address of a 16-bit element, its value) for the keys of one slot of a block, or
// (`tail`) of a sequence's tail.
template <typename Visit>
void VisitKeys(const KvLayout& layout, uint32_t group, std::byte* memory, uint32_t slot, bool tail,
               uint64_t digest, Visit&& visit) {
  const KvGroup& g = layout.groups[group];
  const uint32_t lane = slot % kKvUnitTokens;
  const bool packed = layout.staged() && !tail;
  for (uint32_t layer = 0; layer < g.layers.size(); ++layer) {
    for (uint32_t head = 0; head < g.kv_heads; ++head) {
      std::byte* unit = memory;
      if (tail) {
        unit += layout.tail_offset(group, layer, head);
      } else {
        unit +=
            layout.k_offset(group, layer, head) + slot / kKvUnitTokens * layout.k_unit_bytes(group);
      }
      for (uint32_t c = 0; c < (packed ? kStagedChannels : g.head_dim); ++c) {
        const uint32_t at = packed ? lane * kStagedChannels + c : c * kKvUnitTokens + lane;
        visit(unit + 2 * at, SlotValue(digest, group, layer, head, c, true));
      }
    }
  }
}

template <typename Visit>
void VisitValues(const KvLayout& layout, uint32_t group, std::byte* block, uint32_t slot,
                 uint64_t digest, Visit&& visit) {
  const KvGroup& g = layout.groups[group];
  for (uint32_t layer = 0; layer < g.layers.size(); ++layer) {
    for (uint32_t head = 0; head < g.kv_heads; ++head) {
      std::byte* const v = block + layout.v_offset(group, layer, head);
      for (uint32_t c = 0; c < g.head_dim; ++c) {
        visit(v + 2 * (size_t{slot} * g.head_dim + c),
              SlotValue(digest, group, layer, head, c, false));
      }
    }
  }
}

// What the forward pass does to the unit of keys that ends at `end`: from the tail to its block.
inline void QuantizeDigests(const KvCache& cache, SequenceId id, uint32_t group, uint32_t end) {
  const KvLayout& layout = cache.layout();
  const KvTail tail = cache.tail(id);
  for (uint32_t position = end - kKvUnitTokens; position < end; ++position) {
    std::vector<std::byte*> from;
    VisitKeys(layout, group, tail.memory[group], position, true, 0,
              [&](std::byte* at, uint16_t) { from.push_back(at); });
    std::byte* const block = cache.table(id, group).addresses()[position / layout.block_tokens];
    ASSERT_NE(block, nullptr);
    size_t index = 0;
    VisitKeys(layout, group, block, position % layout.block_tokens, false, 0,
              [&](std::byte* to, uint16_t) {
                const size_t dim = layout.groups[group].head_dim;
                std::memcpy(to, from[index / kStagedChannels * dim + index % kStagedChannels], 2);
                ++index;
              });
  }
}

// What the forward pass does to positions [computed, computed + digests.size()).
inline void WriteDigests(const KvCache& cache, SequenceId id, std::span<const uint64_t> digests) {
  const KvLayout& layout = cache.layout();
  ASSERT_TRUE(DigestsFit(layout));
  const auto write = [](std::byte* to, uint16_t value) { std::memcpy(to, &value, sizeof(value)); };
  const KvTail tail = cache.tail(id);
  for (uint32_t group = 0; group < layout.group_count(); ++group) {
    for (uint32_t i = 0; i < digests.size(); ++i) {
      const uint32_t position = cache.computed(id) + i;
      const bool begins = position % kKvUnitTokens == 0 && (i > 0 || tail.complete);
      if (layout.staged() && begins) QuantizeDigests(cache, id, group, position);
      std::byte* const block = cache.table(id, group).addresses()[position / layout.block_tokens];
      ASSERT_NE(block, nullptr);
      const uint32_t slot = position % layout.block_tokens;
      std::byte* const keys = layout.staged() ? tail.memory[group] : block;
      VisitKeys(layout, group, keys, slot, layout.staged(), digests[i], write);
      VisitValues(layout, group, block, slot, digests[i], write);
    }
  }
}

// Whether every slot that the query at position computed(id) may read holds its digest.
// `digests` are those of the sequence's tokens.
inline void CheckDigests(const KvCache& cache, SequenceId id, std::span<const uint64_t> digests) {
  const KvLayout& layout = cache.layout();
  const uint32_t computed = cache.computed(id);
  ASSERT_LE(computed, digests.size());
  const KvTail tail = cache.tail(id);
  // Keys from here on are in the tail.
  uint32_t staged = UINT32_MAX;
  if (layout.staged()) {
    staged = tail.complete ? computed - kKvUnitTokens : computed / kKvUnitTokens * kKvUnitTokens;
  }
  for (uint32_t group = 0; group < layout.group_count(); ++group) {
    const uint32_t window = layout.groups[group].window;
    const uint32_t first = window == 0 || computed < window ? 0 : computed + 1 - window;
    for (uint32_t position = first; position < computed; ++position) {
      std::byte* const block = cache.table(id, group).addresses()[position / layout.block_tokens];
      ASSERT_NE(block, nullptr) << "group " << group << " position " << position;
      bool equal = true;
      const auto compare = [&](const std::byte* from, uint16_t value) {
        equal &= std::memcmp(from, &value, sizeof(value)) == 0;
      };
      const uint32_t slot = position % layout.block_tokens;
      const bool in_tail = position >= staged;
      VisitKeys(layout, group, in_tail ? tail.memory[group] : block, slot, in_tail,
                digests[position], compare);
      VisitValues(layout, group, block, slot, digests[position], compare);
      ASSERT_TRUE(equal) << "group " << group << " position " << position << " of " << computed;
    }
  }
}

}  // namespace kvasir

#endif  // KVASIR_KV_DIGEST_BLOCKS_FOR_TEST_H_
