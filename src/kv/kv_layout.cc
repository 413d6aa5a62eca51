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

// K and V units of a (layer slot, head) pair take the same room.
size_t UnitRunBytes(const KvLayout& layout, const KvGroup& group) {
  return size_t{layout.block_tokens} * group.head_dim * kF16Bytes;
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
  }
  KV_CHECK(false);
  return "";
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
  return g.layers.size() * g.kv_heads * 2 * UnitRunBytes(*this, g);
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
  return (size_t{layer_slot} * g.kv_heads + head) * 2 * UnitRunBytes(*this, g);
}

size_t KvLayout::v_offset(uint32_t group, uint32_t layer_slot, uint32_t head) const {
  return k_offset(group, layer_slot, head) + UnitRunBytes(*this, groups[group]);
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
