#include "kv/block_hash.h"

// The EVP interface of OpenSSL 3.0 allocates at every EVP_DigestInit, and names are computed inside
// the step; the plain functions work on a context of ours (same code, same SHA instructions).
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <bit>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace kvasir {
namespace {

// Field tags (docs/KV.md). A new kind of content takes a new tag; tags are never reused, and a
// hash's first tag tells its kind, so that a root, a block and a group's name can never be equal.
enum class Tag : uint8_t {
  kFormatVersion = 0x01,
  kModelDigest = 0x02,
  kBlockTokens = 0x03,
  kKvType = 0x04,
  kLayoutVersion = 0x05,
  kQuantizerVersion = 0x06,
  kNumericsVersion = 0x07,
  kGroup = 0x08,       // u32 index; the fields up to the next kGroup describe it.
  kGroupShape = 0x09,  // u32 kv_heads, head_dim, window.
  kGroupLayers = 0x0A,
  kRopeBase = 0x0B,
  kRopeShape = 0x0C,  // u32 dimensions, pairing.
  kRopeScaling = 0x0D,
  kTenantSalt = 0x0E,
  kParent = 0x20,
  kTokens = 0x21,
  kBlock = 0x30,
  kBlockGroup = 0x31,
};

constexpr uint32_t kFormatVersion = 1;
constexpr uint32_t kLayoutVersion = 1;  // Raised when k_offset, v_offset or the units change.

static_assert(std::endian::native == std::endian::little,
              "names are defined over little-endian fields");

class Digest {
 public:
  Digest() { KV_CHECK_EQ(SHA256_Init(&context_), 1); }

  void Bytes(const void* bytes, size_t size) {
    KV_CHECK_EQ(SHA256_Update(&context_, bytes, size), 1);
  }

  void Field(Tag tag, const void* payload, size_t size) {
    KV_CHECK_LE(size, size_t{UINT32_MAX});
    const uint32_t length = static_cast<uint32_t>(size);
    uint8_t header[5] = {static_cast<uint8_t>(tag)};
    std::memcpy(header + 1, &length, sizeof(length));
    Bytes(header, sizeof(header));
    if (size != 0) Bytes(payload, size);
  }

  void Number(Tag tag, uint32_t value) { Field(tag, &value, sizeof(value)); }
  void Text(Tag tag, std::string_view text) { Field(tag, text.data(), text.size()); }

  BlockHash Finish() {
    BlockHash hash;
    static_assert(sizeof(hash.bytes) == SHA256_DIGEST_LENGTH);
    KV_CHECK_EQ(SHA256_Final(hash.bytes.data(), &context_), 1);
    return hash;
  }

 private:
  SHA256_CTX context_;
};

}  // namespace

std::string ToHex(const BlockHash& hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * hash.bytes.size());
  for (const uint8_t byte : hash.bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

BlockHash RootHash(const KvFormat& format) {
  const KvLayout& layout = format.layout;
  KV_CHECK(layout.Validate().ok());
  KV_CHECK_EQ(format.rope.size(), layout.groups.size());
  Digest digest;
  digest.Number(Tag::kFormatVersion, kFormatVersion);
  digest.Field(Tag::kModelDigest, format.model_digest.data(), format.model_digest.size());
  digest.Number(Tag::kBlockTokens, layout.block_tokens);
  digest.Text(Tag::kKvType, KvTypesName(layout.types));
  digest.Number(Tag::kLayoutVersion, kLayoutVersion);
  digest.Number(Tag::kQuantizerVersion, format.quantizer_version);
  digest.Number(Tag::kNumericsVersion, format.numerics_version);
  for (uint32_t index = 0; index < layout.group_count(); ++index) {
    const KvGroup& group = layout.groups[index];
    const KvRope& rope = format.rope[index];
    digest.Number(Tag::kGroup, index);
    const uint32_t shape[] = {group.kv_heads, group.head_dim, group.window};
    digest.Field(Tag::kGroupShape, shape, sizeof(shape));
    digest.Field(Tag::kGroupLayers, group.layers.data(), group.layers.size() * sizeof(uint32_t));
    digest.Field(Tag::kRopeBase, &rope.base, sizeof(rope.base));
    const uint32_t pairing[] = {rope.dimensions, rope.neox ? 1u : 0u};
    digest.Field(Tag::kRopeShape, pairing, sizeof(pairing));
    digest.Text(Tag::kRopeScaling, rope.scaling);
  }
  digest.Text(Tag::kTenantSalt, format.tenant_salt);
  return digest.Finish();
}

BlockHash ChildHash(const BlockHash& parent, std::span<const TokenId> tokens) {
  KV_CHECK(!tokens.empty());
  static_assert(sizeof(TokenId) == 4);
  Digest digest;
  digest.Field(Tag::kParent, parent.bytes.data(), parent.bytes.size());
  digest.Field(Tag::kTokens, tokens.data(), tokens.size_bytes());
  return digest.Finish();
}

BlockHash GroupHash(const BlockHash& block, uint32_t group) {
  KV_CHECK_LT(group, kMaxKvGroups);
  Digest digest;
  digest.Field(Tag::kBlock, block.bytes.data(), block.bytes.size());
  digest.Number(Tag::kBlockGroup, group);
  return digest.Finish();
}

std::vector<BlockHash> HashBlocks(const BlockHash& root, std::span<const TokenId> tokens,
                                  uint32_t block_tokens) {
  KV_CHECK_GT(block_tokens, 0u);
  std::vector<BlockHash> hashes;
  hashes.reserve(tokens.size() / block_tokens);
  BlockHash parent = root;
  for (size_t begin = 0; begin + block_tokens <= tokens.size(); begin += block_tokens) {
    parent = ChildHash(parent, tokens.subspan(begin, block_tokens));
    hashes.push_back(parent);
  }
  return hashes;
}

BlockHash DigestOf(std::span<const std::byte> bytes) {
  Digest digest;
  digest.Bytes(bytes.data(), bytes.size());
  return digest.Finish();
}

}  // namespace kvasir
