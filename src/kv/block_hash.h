// BlockHash: the name of a KV block's content: SHA-256 of its tokens, chained from its parent.
//
// The chain starts at a root that covers everything that changes bytes (KvFormat) and the tenant's
// salt; equal names mean equal bytes in every process and on every machine, and tenants never meet.
// The chain is the same for all groups: one name stands for "these tokens after that prefix".
// The block of one group has the name GroupHash(chain hash, group), which is what tiers store
// under.
//
// Encoding: a hash is over a sequence of fields, each [u8 tag][u32 little-endian length][payload];
// integers are little endian, floats their IEEE bits. docs/KV.md lists the tags.
// Thread: pure functions; no allocation except where a vector or string is returned.
#ifndef KVASIR_KV_BLOCK_HASH_H_
#define KVASIR_KV_BLOCK_HASH_H_

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kv/kv_layout.h"

namespace kvasir {

struct BlockHash {
  std::array<uint8_t, 32> bytes{};

  friend bool operator==(const BlockHash&, const BlockHash&) = default;
  friend auto operator<=>(const BlockHash&, const BlockHash&) = default;
};

// 64 lower-case hexadecimal digits.
std::string ToHex(const BlockHash& hash);

// The rotary embedding of one group's layers.
struct KvRope {
  double base = 10000.0;
  uint32_t dimensions = 0;  // Rotated channels of a head.
  bool neox = false;        // Pairs (i, i + dimensions / 2) instead of (2i, 2i + 1).
  std::string scaling;      // Empty, or a canonical text of method and factors.
};

// Everything that changes the bytes of a block, except its tokens.
struct KvFormat {
  std::array<uint8_t, 32> model_digest{};  // SHA-256 of the model's tensor data.
  KvLayout layout;
  std::vector<KvRope> rope;        // [group_count]
  uint32_t quantizer_version = 2;  // How K and V become the stored type.
  uint32_t numerics_version = 3;   // Raised when any kernel's rounding changes.
  std::string tenant_salt;         // Separates tenants; any bytes.
};

// The name of the empty prefix. REQUIRES: format.layout is valid, one rope per group.
BlockHash RootHash(const KvFormat& format);

// The name of `tokens` after `parent`. A partial block has a name of its own. REQUIRES: not empty.
BlockHash ChildHash(const BlockHash& parent, std::span<const TokenId> tokens);

// The name of one group's block.
BlockHash GroupHash(const BlockHash& block, uint32_t group);

// The names of all full blocks of `tokens`, in order: tokens.size() / block_tokens of them.
std::vector<BlockHash> HashBlocks(const BlockHash& root, std::span<const TokenId> tokens,
                                  uint32_t block_tokens);

// SHA-256 of raw bytes, for model_digest.
BlockHash DigestOf(std::span<const std::byte> bytes);

}  // namespace kvasir

#endif  // KVASIR_KV_BLOCK_HASH_H_
