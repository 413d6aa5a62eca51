// KvLayout: what a KV block holds and where each (layer, head) lies in it.
//
// A block keeps K and V of `block_tokens` consecutive tokens for all layers of one group. Inside,
// (layer slot, head) pairs follow one another, slot-major; each pair holds block_tokens / 16 K
// units and then as many V units, a unit being 16 tokens of one head. docs/KV.md and
// kernels/stored_kv.h say what the bytes of each type are: what attention reads, so nothing is ever
// unpacked. Every offset is a multiple of 32 bytes (of 64 where no type is int8), a block's size of
// 64.
//
// Staged types (int4 K): a K unit is quantized when a later one is begun. Until then its tokens are
// f16 in the tail of their sequence, tail_bytes(group) beside the blocks (tail_store.h).
//
// Groups: layers that see everything form group 0, layers with a sliding window group 1. A model
// without any full-attention layer declares its layers as group 0 with window 0: the lifetime of
// the blocks is then that of full attention (more memory, same results).
// Thread: a value; const methods only.
#ifndef KVASIR_KV_KV_LAYOUT_H_
#define KVASIR_KV_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvasir {

// How K or V is stored. Attention always reads the stored form.
enum class KvType : uint8_t { kF16, kInt8, kInt4 };

struct KvTypes {
  KvType k = KvType::kF16;
  KvType v = KvType::kF16;

  friend bool operator==(const KvTypes&, const KvTypes&) = default;
};

std::string_view KvTypeName(KvType type);  // "f16", "int8", "int4".
// "int8" where both are alike, else "k=int8,v=int4".
std::string KvTypesName(KvTypes types);
// The inverse; kInvalidArgument for anything else.
StatusOr<KvTypes> ParseKvTypes(std::string_view text);

// Tokens of one K or V unit; a block is a whole number of units.
inline constexpr uint32_t kKvUnitTokens = 16;
// Absolute chunk of attention (kernels/attention.h): a block never straddles two.
inline constexpr uint32_t kKvChunkTokens = 256;
// Full and window. A tree node keeps an array of this size, so raising it costs memory per block.
inline constexpr uint32_t kMaxKvGroups = 2;
// Of a group: more would overflow the 32-bit node ids of a prefix tree.
inline constexpr uint64_t kMaxKvBlocks = uint64_t{1} << 29;

// Layers whose blocks live and die together: same heads, same window.
struct KvGroup {
  std::vector<uint32_t> layers;  // Model layer indices; the position in this list is the slot.
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t window = 0;  // Tokens that a query sees, itself included; 0 = all.
};

struct KvLayout {
  uint32_t block_tokens = 16;
  KvTypes types;
  std::vector<KvGroup> groups;  // 1..kMaxKvGroups; [0] has window 0, the others do not.

  // What is wrong with it, if anything. The methods below REQUIRE a valid layout and `group`,
  // `layer_slot`, `head` in range.
  Status Validate() const;

  uint32_t group_count() const { return static_cast<uint32_t>(groups.size()); }

  // Bytes of one K and one V unit.
  size_t k_unit_bytes(uint32_t group) const;
  size_t v_unit_bytes(uint32_t group) const;
  // Bytes of one block, and of one token in a full block of it.
  size_t block_bytes(uint32_t group) const;
  size_t bytes_per_token(uint32_t group) const { return block_bytes(group) / block_tokens; }
  // Of all groups: what one cached token costs.
  size_t bytes_per_token() const;

  // Bytes from a block's base to the first K (V) unit of this layer slot and KV head.
  size_t k_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const;
  size_t v_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const;

  // Whether K is staged. If so, a sequence's tail in a group has an f16 K unit for each layer slot
  // and head, at tail_offset; if not, there is no tail (0 bytes).
  bool staged() const { return types.k == KvType::kInt4; }
  size_t tail_bytes(uint32_t group) const;
  size_t tail_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const;

  // Where a model layer lies. REQUIRES: some group lists `layer`. O(layers).
  struct LayerPlace {
    uint32_t group = 0;
    uint32_t slot = 0;
  };
  LayerPlace PlaceOf(uint32_t layer) const;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_LAYOUT_H_
