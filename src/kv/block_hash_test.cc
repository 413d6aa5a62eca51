#include "kv/block_hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string_view>
#include <thread>

namespace kvasir {
namespace {

KvFormat Format() {
  KvFormat format;
  for (uint8_t i = 0; i < 32; ++i) format.model_digest[i] = i;
  format.layout.groups.push_back(KvGroup{{5, 11}, 1, 256, 0});
  format.layout.groups.push_back(KvGroup{{0, 1, 2}, 1, 256, 512});
  format.rope.push_back(KvRope{1e6, 256, true, "linear:8"});
  format.rope.push_back(KvRope{1e4, 256, true, ""});
  format.quantizer_version = 3;
  format.numerics_version = 7;
  format.tenant_salt = std::string("salt\0\xff", 6);
  return format;
}

std::vector<TokenId> Tokens(uint32_t count) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId{static_cast<int32_t>(i * 7919 % 262144)});
  }
  return tokens;
}

// Computed by Python's hashlib from the field list in docs/KV.md. A change here means that no
// process understands another version's names any more.
TEST(BlockHash, AgreesWithAnIndependentImplementation) {
  const BlockHash root = RootHash(Format());
  EXPECT_EQ(ToHex(root), "c4eb3e1635c21fcc99d3e285f1fc847c6782835dbbe82002fd3666f988a6542f");
  const std::vector<BlockHash> hashes = HashBlocks(root, Tokens(55), 16);
  ASSERT_EQ(hashes.size(), 3u);  // The last 7 tokens are no full block.
  EXPECT_EQ(ToHex(hashes[0]), "7f305bd68e0ee10b800ae29090b9629655d31543ad128a7055181b398f645e53");
  EXPECT_EQ(ToHex(hashes[1]), "bb7283efa49098ae8b2dca9ae0bbbff7a2c8acfbba401cd4a58cf80c6672579b");
  EXPECT_EQ(ToHex(hashes[2]), "abd80a0b4141f3bd0ff5bd4676715d20da8a7ce1fccce64e3f115cffeb231f18");
  EXPECT_EQ(ToHex(GroupHash(hashes[2], 1)),
            "de20327e34c34478db626abaf5f6d5d69f95408d25c5839afe59a5460c48abbe");
  const TokenId partial[] = {TokenId{1}, TokenId{2}, TokenId{3}};
  EXPECT_EQ(ToHex(ChildHash(hashes[2], partial)),
            "e4c91d323473ae8c4e69bbabcdbfcae9289c603d510d30e0080599561c8509f7");
  const std::string_view abc = "abc";
  EXPECT_EQ(ToHex(DigestOf(std::as_bytes(std::span(abc)))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// Whatever changes bytes, or whom they belong to, changes every name.
TEST(BlockHash, RootCoversEveryField) {
  const std::vector<std::function<void(KvFormat&)>> changes = {
      [](KvFormat&) {},
      [](KvFormat& f) { f.model_digest[31] ^= 1; },
      [](KvFormat& f) { f.layout.block_tokens = 32; },
      [](KvFormat& f) { f.quantizer_version = 4; },
      [](KvFormat& f) { f.numerics_version = 8; },
      [](KvFormat& f) {
        f.layout.groups[0].layers = {5, 12};
      },
      [](KvFormat& f) { f.layout.groups[0].layers = {5}; },
      [](KvFormat& f) { f.layout.groups[0].kv_heads = 2; },
      [](KvFormat& f) { f.layout.groups[1].head_dim = 128; },
      [](KvFormat& f) { f.layout.groups[1].window = 513; },
      [](KvFormat& f) { f.rope[0].base = 1e6 + 1; },
      [](KvFormat& f) { f.rope[1].dimensions = 128; },
      [](KvFormat& f) { f.rope[1].neox = false; },
      [](KvFormat& f) { f.rope[1].scaling = "linear:8"; },
      [](KvFormat& f) { f.tenant_salt = "salt"; },
      [](KvFormat& f) { f.tenant_salt.clear(); },
      [](KvFormat& f) {
        f.layout.groups.pop_back();
        f.rope.pop_back();
      },
  };
  std::set<BlockHash> roots;
  for (const auto& change : changes) {
    KvFormat format = Format();
    change(format);
    EXPECT_TRUE(roots.insert(RootHash(format)).second) << roots.size();
  }
}

TEST(BlockHash, ChainsFromTheParent) {
  const std::vector<TokenId> tokens = Tokens(32);
  const BlockHash root = RootHash(Format());
  const std::span<const TokenId> first = std::span(tokens).first(16);
  const BlockHash a = ChildHash(root, first);
  EXPECT_NE(a, ChildHash(a, first));
  EXPECT_NE(a, ChildHash(root, first.first(15)));
  EXPECT_NE(GroupHash(a, 0), GroupHash(a, 1));
  EXPECT_NE(GroupHash(a, 0), a);
  EXPECT_EQ(HashBlocks(root, tokens, 16)[1], ChildHash(a, std::span(tokens).subspan(16)));
  EXPECT_EQ(HashBlocks(root, tokens, 32)[0], ChildHash(root, tokens));
  EXPECT_TRUE(HashBlocks(root, first.first(15), 16).empty());
}

TEST(BlockHash, EveryThreadComputesTheSameNames) {
  const std::vector<TokenId> tokens = Tokens(160);
  const BlockHash root = RootHash(Format());
  const std::vector<BlockHash> expected = HashBlocks(root, tokens, 16);
  std::vector<std::vector<BlockHash>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) result = HashBlocks(RootHash(Format()), tokens, 16);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(BlockHashDeathTest, Misuse) {
  EXPECT_DEATH(ChildHash(BlockHash{}, {}), "block_hash.cc");
  EXPECT_DEATH(GroupHash(BlockHash{}, kMaxKvGroups), "block_hash.cc");
  KvFormat format = Format();
  format.rope.pop_back();
  EXPECT_DEATH(RootHash(format), "block_hash.cc");
}

}  // namespace
}  // namespace kvasir
