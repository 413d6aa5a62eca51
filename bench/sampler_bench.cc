// Cost of choosing a token from one row of logits, microseconds a call: greedy, top-k with top-p,
// min-p, log-probabilities of the best, for the vocabularies of SmolLM2 and Gemma and every
// instruction set. The logits are normal with a few outstanding ones, as a model's are.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/sampler.h"
#include "kernels/isa.h"

namespace kvasir {
namespace {

constexpr uint32_t kRows = 8;  // Taken in turn, so that no draw is always the same.

std::vector<std::vector<float>> Rows(uint32_t vocab) {
  Rng rng(1);
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(vocab));
  for (std::vector<float>& row : rows) {
    for (float& v : row) v = rng.Normal() * 3.0f;
    for (int i = 0; i < 30; ++i) row[rng.Below(vocab)] += 10.0f + rng.Normal();
  }
  return rows;
}

void BM_Sample(benchmark::State& state, Isa isa, uint32_t vocab, SamplingOptions options) {
  SetActiveIsa(isa);
  const auto rows = Rows(vocab);
  const Sampler sampler(options, vocab, 16);
  SamplerScratch scratch(vocab);
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.Sample(rows[position % kRows], position, scratch));
    ++position;
  }
  state.counters["logits"] = vocab;
}

void BM_LogProbs(benchmark::State& state, Isa isa, uint32_t vocab) {
  SetActiveIsa(isa);
  const auto rows = Rows(vocab);
  SamplerScratch scratch(vocab);
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ReportLogProbs(rows[position % kRows], TokenId{7}, 20, scratch));
    ++position;
  }
  state.counters["logits"] = vocab;
}

const bool kRegistered = [] {
  SamplingOptions greedy, top_k, top_p, min_p;
  greedy.temperature = 0.0f;
  top_k.temperature = top_p.temperature = min_p.temperature = 0.8f;
  top_k.top_k = 40;
  top_k.top_p = 0.95f;
  top_p.top_p = 0.95f;
  min_p.min_p = 0.05f;
  for (const Isa isa : SupportedIsas()) {
    for (const uint32_t vocab : {49'152u, 262'144u}) {
      const auto add = [&](const char* what, const SamplingOptions& options) {
        benchmark::RegisterBenchmark(
            (std::string(what) + " of " + std::to_string(vocab) + " " + std::string(IsaName(isa)))
                .c_str(),
            BM_Sample, isa, vocab, options)
            ->Unit(benchmark::kMicrosecond);
      };
      add("greedy", greedy);
      add("top-k 40, top-p", top_k);
      add("top-p alone", top_p);
      add("min-p", min_p);
      benchmark::RegisterBenchmark(
          ("log-probabilities of 20 of " + std::to_string(vocab) + " " + std::string(IsaName(isa)))
              .c_str(),
          BM_LogProbs, isa, vocab)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace kvasir

BENCHMARK_MAIN();
