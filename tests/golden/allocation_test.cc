// The steady decode step allocates nothing: neither on the engine thread nor on the workers.
//
// A program of its own, because it replaces the global operator new with one that counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/logits_row.h"
#include "kernels/row_ops.h"
#include "kv/kv_cache.h"
#include "tests/golden/golden_model.h"

namespace {
std::atomic<uint64_t> allocation_count{0};

void* CountedAllocate(std::size_t size, std::size_t alignment) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size == 0 ? 1 : size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace

void* operator new(std::size_t size) { return CountedAllocate(size, 1); }
void* operator new[](std::size_t size) { return CountedAllocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return CountedAllocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return CountedAllocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }

namespace kvasir {
namespace {

constexpr uint32_t kSequences = 8;
constexpr uint32_t kPromptTokens = 40;
constexpr uint32_t kSteps = 64;  // With 16-token blocks every sequence crosses four block borders.

void ExpectNoAllocation(const char* file_name) {
  const std::optional<std::string> path = GoldenModelPath(file_name);
  if (!path.has_value()) return;
  const GoldenModel& model = LoadGoldenModel(*path);
  WorkerTeam team(2);
  StepLimits limits;
  limits.max_rows = 64;
  limits.max_sequences = kSequences;
  limits.max_logits_rows = kSequences;
  auto runner = CpuModelRunner::Create(model.config, model.weights, 16, limits, team);
  ASSERT_TRUE(runner.ok());
  KvCache::Options options;
  options.layout = (*runner)->kv_layout();
  // Too small for all that is published: the steps evict, too.
  options.block_counts.assign(options.layout.groups.size(), 60);
  options.max_sequences = kSequences;
  options.max_sequence_tokens = 256;
  auto cache = KvCache::Create(options);
  ASSERT_TRUE(cache.ok());

  Batch batch;
  batch.sequences.reserve(kSequences);
  std::vector<SequenceId> ids;
  std::vector<TokenId> next(kSequences);
  for (uint32_t s = 0; s < kSequences; ++s) {
    std::vector<TokenId> prompt;
    for (uint32_t i = 0; i < kPromptTokens; ++i) {
      prompt.push_back(TokenId{static_cast<int32_t>(100 + s * 50 + i)});
    }
    const std::optional<SequenceId> id = (*cache)->Open(BlockHash{}, prompt);
    ASSERT_TRUE(id.has_value() && (*cache)->Reserve(*id, kPromptTokens));
    batch.sequences.resize(1);
    batch.sequences[0] = {prompt, 0, kPromptTokens - 1, {}, {}};
    for (uint32_t g = 0; g < options.layout.groups.size(); ++g) {
      batch.sequences[0].blocks[g] = (*cache)->table(*id, g).addresses();
    }
    (*runner)->Run(batch);
    (*cache)->Commit(*id, prompt);
    next[s] = TokenId{static_cast<int32_t>(ArgMax((*runner)->logits(0)))};
    ids.push_back(*id);
  }

  const auto step = [&] {
    batch.sequences.resize(kSequences);
    for (uint32_t s = 0; s < kSequences; ++s) {
      ASSERT_TRUE((*cache)->Reserve(ids[s], 1));
      batch.sequences[s] = {{&next[s], 1}, (*cache)->computed(ids[s]), 0, {}, {}};
      for (uint32_t g = 0; g < options.layout.groups.size(); ++g) {
        batch.sequences[s].blocks[g] = (*cache)->table(ids[s], g).addresses();
      }
    }
    (*runner)->Run(batch);
    for (uint32_t s = 0; s < kSequences; ++s) {
      (*cache)->Commit(ids[s], {&next[s], 1});
      next[s] = TokenId{static_cast<int32_t>(ArgMax((*runner)->logits(s)))};
    }
  };
  step();
  const uint64_t before = allocation_count.load();
  for (uint32_t i = 0; i < kSteps; ++i) step();
  EXPECT_EQ(allocation_count.load() - before, 0u);
  EXPECT_GT(before, 0u) << "the counter does not count";
}

TEST(SteadyDecodeAllocation, SmolLm2) { ExpectNoAllocation(kSmolLm2); }
TEST(SteadyDecodeAllocation, Gemma3) { ExpectNoAllocation(kGemma3); }

}  // namespace
}  // namespace kvasir
