// What eviction costs by the number of cached blocks, nanoseconds a block: one request's block is
// found again and comes to rest, one block is evicted, one is put in its place. A step of the
// engine does this for at most some hundreds of blocks.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "kv/eviction_policy.h"

namespace kvasir {
namespace {

void EvictOne(benchmark::State& state, KvEvict evict) {
  const uint32_t blocks = static_cast<uint32_t>(state.range(0));
  EvictionOptions options;
  options.evict = evict;
  options.item_count = blocks;
  options.max_path = 256;
  const std::unique_ptr<EvictionPolicy> policy = MakeEvictionPolicy(options);
  Rng rng(1);
  uint64_t stamp = 0;
  uint64_t name = 0;
  const auto put = [&](uint32_t item) {
    policy->Add(item, {++name, static_cast<uint32_t>(rng.Below(4096)), 16});
    policy->Rest(item, ++stamp);
    policy->Offer(item);
  };
  for (uint32_t item = 0; item < blocks; ++item) put(item);
  for (auto _ : state) {
    const uint32_t victim = *policy->Victim();
    policy->Evict(victim);
    policy->Withdraw(victim);
    policy->Remove(victim);
    put(victim);
    const uint32_t again = static_cast<uint32_t>(rng.Below(blocks));
    policy->Withdraw(again);
    policy->Use(again);
    policy->Rest(again, ++stamp);
    policy->Offer(again);
  }
}

void RegisterAll() {
  for (uint32_t i = 0; i <= kFixedKvEvicts; ++i) {
    const KvEvict evict = static_cast<KvEvict>(i);
    benchmark::RegisterBenchmark(("evict/" + std::string(KvEvictName(evict))).c_str(),
                                 [evict](benchmark::State& state) { EvictOne(state, evict); })
        ->RangeMultiplier(10)
        ->Range(1000, 1'000'000);
  }
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  kvasir::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
