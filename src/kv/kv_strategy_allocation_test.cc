// The steady step allocates nothing, whatever the strategy: counts every operator new and every
// allocation of OpenSSL in this test program.
#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace {

std::atomic<uint64_t> g_allocations{0};

void* CountedMalloc(size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size);
}
void* CryptoMalloc(size_t size, const char*, int) { return CountedMalloc(size); }
void* CryptoRealloc(void* old, size_t size, const char*, int) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::realloc(old, size);
}
void CryptoFree(void* pointer, const char*, int) { std::free(pointer); }

// OpenSSL takes these only before its first allocation.
const int g_crypto_counted = CRYPTO_set_mem_functions(&CryptoMalloc, &CryptoRealloc, &CryptoFree);

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  void* const pointer = CountedMalloc(size);
  if (pointer == nullptr) std::abort();
  return pointer;
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }

namespace kvasir {
namespace {

class KvCacheAllocation : public ::testing::TestWithParam<KvStrategy> {
 protected:
  std::unique_ptr<KvCache> Make(uint32_t blocks, uint32_t window_blocks) const {
    KvCache::Options options;
    options.strategy = GetParam();
    options.layout.groups.push_back(KvGroup{{0}, 1, 16, 0});
    options.layout.groups.push_back(KvGroup{{1, 2}, 1, 16, 40});
    options.block_counts = {blocks, window_blocks};
    if (GetParam() == KvStrategy::kStatic) options.block_counts = {8 * 64, 8 * 64};  // 8 slots.
    options.max_sequences = 8;
    options.max_sequence_tokens = 1024;
    auto cache = KvCache::Create(options);
    KV_CHECK(cache.ok());
    return std::move(cache).value();
  }
  bool paged() const { return GetParam() == KvStrategy::kPaged; }
  bool moves() const {
    return GetParam() == KvStrategy::kDynamic || GetParam() == KvStrategy::kShared;
  }
};

// Steps of 8 sequences with one token each; every sequence crosses several block borders, and half
// of them do the same work as another one.
void Decode(KvCache& cache, const std::vector<SequenceId>& ids, int steps) {
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const TokenId token{static_cast<int32_t>(i / 2 * 1000) + step};
      KV_CHECK(cache.Reserve(ids[i], 1));
      cache.Commit(ids[i], std::span(&token, 1));
    }
  }
}

TEST_P(KvCacheAllocation, SteadyDecodeAllocatesNothing) {
  ASSERT_EQ(g_crypto_counted, 1);
  for (const uint32_t window_blocks : {64u, 22u}) {  // With room, and evicting all the time.
    if (!paged() && window_blocks == 22) continue;   // A region has both groups.
    const auto cache = Make(64, window_blocks);
    std::vector<SequenceId> ids;
    for (uint32_t i = 0; i < 8; ++i) {
      std::vector<TokenId> prompt;
      for (uint32_t j = 0; j < 20 + i / 2; ++j) prompt.push_back(TokenId{static_cast<int>(i / 2)});
      ids.push_back(*cache->Open(BlockHash{}, prompt));
      const uint32_t left = static_cast<uint32_t>(prompt.size()) - cache->computed(ids.back());
      ASSERT_TRUE(cache->Reserve(ids.back(), left));
      cache->Commit(ids.back(), std::span(prompt).last(left));
    }
    const uint64_t before = g_allocations.load();
    Decode(*cache, ids, 64);
    EXPECT_EQ(g_allocations.load() - before, 0u);
    EXPECT_EQ(cache->counters().failed_reserves, 0u);
    if (paged()) {
      EXPECT_GT(cache->counters().duplicate_nodes, 8u);
    }
    // Nobody said how long they would get: regions grow, and are moved.
    EXPECT_EQ(cache->counters().moves > 0, moves());
    if (window_blocks == 22) {
      EXPECT_GT(cache->counters().evictions[1], 0u);
    }
    cache->CheckInvariants();
  }
}

// Nor do requests that come and go, once the cache is warm.
TEST_P(KvCacheAllocation, OpenForkCloseAllocateNothing) {
  const auto cache = Make(64, 64);
  std::vector<TokenId> prompt;
  const auto run = [&](int name) {
    for (uint32_t j = 0; j < prompt.size(); ++j) prompt[j] = TokenId{j < 50 ? 1 : name};
    const SequenceId id = *cache->Open(BlockHash{}, prompt);
    const uint32_t left = static_cast<uint32_t>(prompt.size()) - cache->computed(id);
    KV_CHECK(cache->Reserve(id, left));
    cache->Commit(id, std::span(prompt).last(left));
    const SequenceId fork = *cache->Fork(id);
    KV_CHECK(cache->Reserve(fork, 1));
    cache->Commit(fork, std::span(prompt).last(1));
    cache->Close(id);
    cache->Close(fork);
  };
  prompt.resize(200);
  run(0);
  const uint64_t before = g_allocations.load();
  for (int name = 1; name < 50; ++name) run(name);
  EXPECT_EQ(g_allocations.load() - before, 0u);
  EXPECT_GT(cache->counters().evictions[0] + (GetParam() == KvStrategy::kStatic), 0u);
  EXPECT_GT(cache->counters().copies, 0u);
}

// Nor does any policy, with requests that come and go and pins that come and end.
TEST(KvEvictAllocation, NoPolicyAllocates) {
  for (uint32_t i = 0; i <= kFixedKvEvicts; ++i) {
    SCOPED_TRACE(KvEvictName(static_cast<KvEvict>(i)));
    KvCache::Options options;
    options.evict = static_cast<KvEvict>(i);
    options.layout.groups.push_back(KvGroup{{0}, 1, 16, 0});
    options.block_counts = {64};
    options.max_sequences = 2;
    options.max_sequence_tokens = 1024;
    auto cache = KvCache::Create(options);
    ASSERT_TRUE(cache.ok());
    std::vector<TokenId> prompt(200);
    const auto run = [&](int name, TimeUs now) {
      for (uint32_t j = 0; j < prompt.size(); ++j) prompt[j] = TokenId{j < 50 ? 1 : name};
      const SequenceId id = *(*cache)->Open(BlockHash{}, prompt);
      const uint32_t left = static_cast<uint32_t>(prompt.size()) - (*cache)->computed(id);
      KV_CHECK((*cache)->Reserve(id, left));
      (*cache)->Commit(id, std::span(prompt).last(left));
      (*cache)->Close(id);
      (*cache)->AdvanceTo(now);
      const KvPin pin = (*cache)->PinCached(BlockHash{}, prompt, now + 9);
      KV_CHECK(pin.outcome == KvPinOutcome::kPinned);
    };
    run(0, 0);
    const uint64_t before = g_allocations.load();
    for (int name = 1; name < 400; ++name) run(name % 7 == 0 ? 7 : name, name * 10);
    EXPECT_EQ(g_allocations.load() - before, 0u);
    EXPECT_GT((*cache)->counters().evictions[0], 1000u);
    if (options.evict == KvEvict::kAdaptive) {
      EXPECT_GT((*cache)->eviction().windows, 0u);
    }
    (*cache)->CheckInvariants();
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, KvCacheAllocation, ::testing::ValuesIn(AllKvStrategies()),
                         [](const auto& param) {
                           return std::string(KvStrategyName(param.param));
                         });

}  // namespace
}  // namespace kvasir
