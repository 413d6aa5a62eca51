// KvLayout: what a KV block holds and where each (layer, head) lies in it.
//
// A block keeps K and V of `block_tokens` consecutive tokens for all layers of one group. Inside,
// (layer slot, head) pairs follow one another, slot-major; each pair holds block_tokens / 16 K
// units of [head_dim][16] f16 (transposed: 16 tokens of one channel are one vector) and then as
// many V units of [16][head_dim] f16. Every offset is a multiple of 64 bytes, as is the block's
// size. This is the layout that attention reads (kernels/attention.h), so nothing is ever unpacked.
//
// Groups: layers that see everything form group 0, layers with a sliding window group 1. A model
// without any full-attention layer declares its layers as group 0 with window 0: the lifetime of
// the blocks is then that of full attention (more memory, same results).
// Thread: a value; const methods only.
#ifndef KVASIR_KV_KV_LAYOUT_H_
#define KVASIR_KV_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvasir {

// How K and V are stored. Attention always reads the stored form.
enum class KvType : uint8_t { kF16 };

std::string_view KvTypeName(KvType type);

// Tokens of one K or V unit; a block is a whole number of units.
inline constexpr uint32_t kKvUnitTokens = 16;
// Absolute chunk of attention (kernels/attention.h): a block never straddles two.
inline constexpr uint32_t kKvChunkTokens = 256;
// Full and window. A tree node keeps an array of this size, so raising it costs memory per block.
inline constexpr uint32_t kMaxKvGroups = 2;

// Layers whose blocks live and die together: same heads, same window.
struct KvGroup {
  std::vector<uint32_t> layers;  // Model layer indices; the position in this list is the slot.
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t window = 0;  // Tokens that a query sees, itself included; 0 = all.
};

struct KvLayout {
  uint32_t block_tokens = 16;
  KvType type = KvType::kF16;
  std::vector<KvGroup> groups;  // 1..kMaxKvGroups; [0] has window 0, the others do not.

  // What is wrong with it, if anything. The methods below REQUIRE a valid layout and `group`,
  // `layer_slot`, `head` in range.
  Status Validate() const;

  uint32_t group_count() const { return static_cast<uint32_t>(groups.size()); }

  // Bytes of one block, and of one token in a full block of it.
  size_t block_bytes(uint32_t group) const;
  size_t bytes_per_token(uint32_t group) const { return block_bytes(group) / block_tokens; }
  // Of all groups: what one cached token costs.
  size_t bytes_per_token() const;

  // Bytes from a block's base to the first K (V) unit of this layer slot and KV head.
  size_t k_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const;
  size_t v_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const;

  // Where a model layer lies. REQUIRES: some group lists `layer`. O(layers).
  struct LayerPlace {
    uint32_t group = 0;
    uint32_t slot = 0;
  };
  LayerPlace PlaceOf(uint32_t layer) const;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_LAYOUT_H_
