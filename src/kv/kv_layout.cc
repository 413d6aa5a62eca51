#include "kv/kv_layout.h"

#include <set>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr size_t kF16Bytes = 2;

const KvGroup& GroupAt(const KvLayout& layout, uint32_t group) {
  KV_CHECK_LT(group, layout.group_count());
  return layout.groups[group];
}

constexpr uint32_t kScaleGroup = 64;  // Channels that share a token's scale.

size_t ScaleGroups(uint32_t head_dim) { return (head_dim + kScaleGroup - 1) / kScaleGroup; }

// kernels/stored_kv.h has the same sizes; a test of model/ compares them.
size_t UnitBytes(KvType type, bool is_k, uint32_t head_dim) {
  const size_t values = size_t{kKvUnitTokens} * head_dim;
  const size_t token_scales = ScaleGroups(head_dim) * kKvUnitTokens * kF16Bytes;
  switch (type) {
    case KvType::kF16:
      return values * kF16Bytes;
    case KvType::kInt8:
      return values + token_scales;
    case KvType::kInt4:  // Scales and minimums: of channels (K), of tokens (V).
      return values / 2 + 2 * (is_k ? head_dim * kF16Bytes : token_scales);
  }
  KV_CHECK(false);
  return 0;
}

// All units of a (layer slot, head) pair.
size_t PairBytes(const KvLayout& layout, uint32_t group) {
  return layout.block_tokens / kKvUnitTokens *
         (layout.k_unit_bytes(group) + layout.v_unit_bytes(group));
}

Status ValidateGroup(const KvGroup& group, uint32_t index) {
  if (group.layers.empty()) return InvalidArgument("KV group {}: it has no layer", index);
  if (group.kv_heads == 0 || group.kv_heads > 4096) {
    return InvalidArgument("KV group {}: {} KV heads; 1 to 4096 are possible", index,
                           group.kv_heads);
  }
  if (group.head_dim == 0 || group.head_dim % 16 != 0 || group.head_dim > 4096) {
    return InvalidArgument("KV group {}: head dimension {} is not a multiple of 16 up to 4096",
                           index, group.head_dim);
  }
  if (group.layers.size() > 4096) {
    return InvalidArgument("KV group {}: {} layers; at most 4096 are possible", index,
                           group.layers.size());
  }
  if (index == 0 && group.window != 0) {
    return InvalidArgument("KV group 0 must have full attention, not a window of {} tokens",
                           group.window);
  }
  if (index > 0 && group.window == 0) {
    return InvalidArgument("KV group {} has no window; layers with full attention are group 0",
                           index);
  }
  return OkStatus();
}

}  // namespace

std::string_view KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kInt8:
      return "int8";
    case KvType::kInt4:
      return "int4";
  }
  KV_CHECK(false);
  return "";
}

std::string KvTypesName(KvTypes types) {
  if (types.k == types.v) return std::string(KvTypeName(types.k));
  return "k=" + std::string(KvTypeName(types.k)) + ",v=" + std::string(KvTypeName(types.v));
}

StatusOr<KvTypes> ParseKvTypes(std::string_view text) {
  constexpr KvType kTypes[] = {KvType::kF16, KvType::kInt8, KvType::kInt4};
  for (const KvType k : kTypes) {
    if (text == KvTypeName(k)) return KvTypes{k, k};
    for (const KvType v : kTypes) {
      const std::string k_part = "k=" + std::string(KvTypeName(k));
      const std::string v_part = "v=" + std::string(KvTypeName(v));
      if (text == k_part + "," + v_part || text == v_part + "," + k_part) return KvTypes{k, v};
    }
  }
  return InvalidArgument(
      "KV type \"{}\" is unknown; use f16, int8 or int4, or both like k=int8,v=int4", text);
}

Status KvLayout::Validate() const {
  if (block_tokens == 0 || block_tokens % kKvUnitTokens != 0 ||
      kKvChunkTokens % block_tokens != 0) {
    return InvalidArgument("a KV block of {} tokens is not possible; choose 16, 32, 64, 128 or 256",
                           block_tokens);
  }
  if (groups.empty() || groups.size() > kMaxKvGroups) {
    return InvalidArgument("{} KV groups; 1 to {} are possible", groups.size(), kMaxKvGroups);
  }
  std::set<uint32_t> seen;
  for (uint32_t index = 0; index < group_count(); ++index) {
    KV_RETURN_IF_ERROR(ValidateGroup(groups[index], index));
    if (staged() && groups[index].window != 0 && groups[index].window <= kKvUnitTokens) {
      return InvalidArgument(
          "KV group {}: K of type {} needs a window of more than {} tokens, not {}", index,
          KvTypeName(types.k), kKvUnitTokens, groups[index].window);
    }
    for (const uint32_t layer : groups[index].layers) {
      if (!seen.insert(layer).second) {
        return InvalidArgument("KV group {}: layer {} is listed twice", index, layer);
      }
    }
  }
  return OkStatus();
}

size_t KvLayout::block_bytes(uint32_t group) const {
  const KvGroup& g = GroupAt(*this, group);
  // One int8 unit may be an odd number of halves of a cache line.
  return (g.layers.size() * g.kv_heads * PairBytes(*this, group) + 63) / 64 * 64;
}

size_t KvLayout::k_unit_bytes(uint32_t group) const {
  return UnitBytes(types.k, /*is_k=*/true, GroupAt(*this, group).head_dim);
}

size_t KvLayout::v_unit_bytes(uint32_t group) const {
  return UnitBytes(types.v, /*is_k=*/false, GroupAt(*this, group).head_dim);
}

size_t KvLayout::bytes_per_token() const {
  size_t sum = 0;
  for (uint32_t group = 0; group < group_count(); ++group) sum += bytes_per_token(group);
  return sum;
}

size_t KvLayout::k_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const {
  const KvGroup& g = GroupAt(*this, group);
  KV_CHECK_LT(layer_slot, g.layers.size());
  KV_CHECK_LT(head, g.kv_heads);
  return (size_t{layer_slot} * g.kv_heads + head) * PairBytes(*this, group);
}

size_t KvLayout::v_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const {
  return k_offset(group, layer_slot, head) + block_tokens / kKvUnitTokens * k_unit_bytes(group);
}

size_t KvLayout::tail_bytes(uint32_t group) const {
  const KvGroup& g = GroupAt(*this, group);
  if (!staged()) return 0;
  return g.layers.size() * g.kv_heads * UnitBytes(KvType::kF16, /*is_k=*/true, g.head_dim);
}

size_t KvLayout::tail_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const {
  const KvGroup& g = GroupAt(*this, group);
  KV_CHECK_LT(layer_slot, g.layers.size());
  KV_CHECK_LT(head, g.kv_heads);
  return (size_t{layer_slot} * g.kv_heads + head) *
         UnitBytes(KvType::kF16, /*is_k=*/true, g.head_dim);
}

KvLayout::LayerPlace KvLayout::PlaceOf(uint32_t layer) const {
  for (uint32_t group = 0; group < group_count(); ++group) {
    for (uint32_t slot = 0; slot < groups[group].layers.size(); ++slot) {
      if (groups[group].layers[slot] == layer) return LayerPlace{group, slot};
    }
  }
  KV_CHECK(false && "no KV group lists this layer");
  return LayerPlace{};
}

}  // namespace kvasir
