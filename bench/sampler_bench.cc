// Cost of choosing a token from one row of logits, microseconds a call: greedy, top-k with top-p,
// min-p, log-probabilities of the best, for the vocabularies of SmolLM2 and Gemma and every
// instruction set. The logits are normal with a few outstanding ones, as a model's are.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/sampler.h"
#include "kernels/isa.h"
#include "kernels/logits_row.h"

namespace kvasir {
namespace {

constexpr uint32_t kRows = 8;  // Taken in turn, so that no draw is always the same.

// Rows as a step leaves them: with notes of their blocks.
class Rows {
 public:
  explicit Rows(uint32_t vocab) : values_(kRows, std::vector<float>(vocab)) {
    Rng rng(1);
    for (std::vector<float>& row : values_) {
      for (float& v : row) v = rng.Normal() * 3.0f;
      for (int i = 0; i < 30; ++i) row[rng.Below(vocab)] += 10.0f + rng.Normal();
      maxima_.emplace_back(LogitsBlocks(vocab));
      sums_.emplace_back(LogitsBlocks(vocab));
      SummarizeBlocks(row, maxima_.back(), sums_.back());
    }
  }
  LogitsRow operator[](uint64_t position) const {
    const size_t row = position % kRows;
    return {values_[row], maxima_[row], sums_[row]};
  }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<float>> maxima_;
  std::vector<std::vector<float>> sums_;
};

// What the notes cost whoever writes the row, here for a whole row at once: a worker does it a few
// blocks at a time, in the nearest cache.
void BM_Notes(benchmark::State& state, Isa isa, uint32_t vocab, bool with_sums) {
  SetActiveIsa(isa);
  const Rows rows(vocab);
  std::vector<float> maxima(LogitsBlocks(vocab));
  std::vector<float> sums(with_sums ? LogitsBlocks(vocab) : 0);
  const std::span<const float> block = rows[0].values.first(8 * kLogitsBlock);
  for (auto _ : state) {
    for (size_t b = 0; b < maxima.size(); b += 8) {
      SummarizeBlocks(block, std::span(maxima).subspan(b, 8),
                      with_sums ? std::span(sums).subspan(b, 8) : std::span<float>());
      benchmark::ClobberMemory();
    }
  }
}

void BM_Sample(benchmark::State& state, Isa isa, uint32_t vocab, SamplingOptions options) {
  SetActiveIsa(isa);
  const Rows rows(vocab);
  const Sampler sampler(options, vocab, 16);
  SamplerScratch scratch(vocab);
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.Sample(rows[position], position, scratch));
    ++position;
  }
  state.counters["logits"] = vocab;
}

void BM_LogProbs(benchmark::State& state, Isa isa, uint32_t vocab) {
  SetActiveIsa(isa);
  const Rows rows(vocab);
  SamplerScratch scratch(vocab);
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ReportLogProbs(rows[position], TokenId{7}, 20, scratch));
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
      for (const bool with_sums : {false, true}) {
        benchmark::RegisterBenchmark((std::string(with_sums ? "notes with sums of " : "notes of ") +
                                      std::to_string(vocab) + " " + std::string(IsaName(isa)))
                                         .c_str(),
                                     BM_Notes, isa, vocab, with_sums)
            ->Unit(benchmark::kMicrosecond);
      }
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
