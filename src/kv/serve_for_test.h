// For tests of a KvCache: prompts made of numbers, and requests that compute them with digests in
// place of KV.
#ifndef KVASIR_KV_SERVE_FOR_TEST_H_
#define KVASIR_KV_SERVE_FOR_TEST_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kv/digest_blocks_for_test.h"
#include "kv/kv_cache.h"

namespace kvasir {

inline std::unique_ptr<KvCache> CacheOf(const KvCache::Options& options) {
  auto cache = KvCache::Create(options);
  KV_CHECK(cache.ok());
  return std::move(cache).value();
}

// `count` tokens of the prompt called `name`; prompts with different names share no token.
inline std::vector<TokenId> Prompt(int name, uint32_t count) {
  KV_CHECK_LT(count, 1'000'000u);
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId{static_cast<int32_t>(name * 1'000'000 + static_cast<int>(i))});
  }
  return tokens;
}

inline std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Computes `tokens` (the whole sequence) from where `id` stands, `chunk` at a time. False when
// there was no room.
inline bool Compute(KvCache& cache, SequenceId id, const std::vector<TokenId>& tokens,
                    uint32_t chunk = UINT32_MAX) {
  const std::vector<uint64_t> digests = PrefixDigests(0, tokens);
  while (cache.computed(id) < tokens.size()) {
    const uint32_t begin = cache.computed(id);
    const uint32_t count = std::min(chunk, static_cast<uint32_t>(tokens.size()) - begin);
    if (!cache.Reserve(id, count)) return false;
    WriteDigests(cache, id, std::span(digests).subspan(begin, count));
    cache.Commit(id, std::span(tokens).subspan(begin, count));
  }
  CheckDigests(cache, id, digests);
  cache.CheckInvariants();
  return true;
}

// Runs a whole request, whose length is known; returns how many tokens were reused.
inline uint32_t Serve(KvCache& cache, const std::vector<TokenId>& tokens,
                      const BlockHash& root = {}, uint32_t chunk = 512) {
  const auto id = cache.Open(root, tokens, static_cast<uint32_t>(tokens.size()));
  KV_CHECK(id.has_value());
  const uint32_t reused = cache.computed(*id);
  EXPECT_TRUE(Compute(cache, *id, tokens, chunk));
  cache.Close(*id);
  cache.CheckInvariants();
  return reused;
}

}  // namespace kvasir

#endif  // KVASIR_KV_SERVE_FOR_TEST_H_
