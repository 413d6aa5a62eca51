// HeadScan in the forward pass of the real models: at thousands of positions the largest logit is
// the whole head's, value and index, and less of the head is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/logits_row.h"
#include "kernels/row_ops.h"
#include "model/cpu_model_runner.h"
#include "model/head_scan.h"
#include "tests/golden/golden_model.h"

namespace kvasir {
namespace {

constexpr uint32_t kRows = HeadScan::kMaxRows;

struct Largest {
  uint32_t index;
  uint32_t bits;
  friend bool operator==(const Largest&, const Largest&) = default;
};

class Scanned {
 public:
  explicit Scanned(const std::string& path, int workers = WorkerTeam::UsableCores())
      : team_(workers) {
    file_ = *MappedFile::Open(path);
    gguf_.emplace(*GgufFile::Parse(file_.bytes()));
    config_ = *ReadModelConfig(*gguf_);
    WeightsLoadOptions options;
    options.head_sketch = true;
    weights_.emplace(*Weights::Load(*gguf_, config_, team_, options));
    StepLimits limits;
    limits.max_rows = kRows;
    limits.max_sequences = 1;
    limits.max_logits_rows = kRows;
    runner_ = *CpuModelRunner::Create(config_, *weights_, 16, limits, team_);
  }

  const Weights& weights() const { return *weights_; }
  const ModelConfig& config() const { return config_; }

  // Both ways over the tokens, `step` rows at a time; afterwards `greedy` more tokens of the
  // model's own, one at a time.
  void Check(std::vector<TokenId> tokens, uint32_t step, uint32_t greedy) {
    const uint32_t given = static_cast<uint32_t>(tokens.size());
    const PlainKv kv(runner_->kv_layout(), given + greedy);
    for (uint32_t start = 0; start < tokens.size();) {
      const uint32_t left = static_cast<uint32_t>(tokens.size()) - start;
      const uint32_t rows = std::min(step, left);
      Batch batch;
      BatchSequence& sequence = batch.sequences.emplace_back();
      sequence.tokens = std::span<const TokenId>(tokens).subspan(start, rows);
      sequence.start = start;
      sequence.blocks = kv.blocks();
      const std::vector<Largest> full = Run(batch);
      sequence.arg_max_only = true;
      const StepCounters before = runner_->totals();
      ASSERT_EQ(Run(batch), full) << "at " << start;
      scanned_bytes_ += (runner_->totals() - before).weight_bytes;
      ++steps_;
      positions_ += rows;
      start += rows;
      if (start == tokens.size() && tokens.size() < given + greedy) {
        tokens.push_back(TokenId{static_cast<int32_t>(full.back().index)});
      }
    }
  }

  uint64_t positions() const { return positions_; }
  double bytes_a_step() const { return static_cast<double>(scanned_bytes_) / steps_; }

 private:
  std::vector<Largest> Run(const Batch& batch) {
    runner_->Run(batch);
    std::vector<Largest> out;
    for (uint32_t row = 0; row < batch.logits_row_count(); ++row) {
      const std::span<const float> logits = runner_->logits(row);
      const uint32_t index = ArgMax(logits);
      out.push_back({index, std::bit_cast<uint32_t>(logits[index])});
    }
    return out;
  }

  WorkerTeam team_;
  MappedFile file_;
  std::optional<GgufFile> gguf_;
  ModelConfig config_;
  std::optional<Weights> weights_;
  std::unique_ptr<CpuModelRunner> runner_;
  uint64_t scanned_bytes_ = 0;
  uint64_t positions_ = 0;
  uint64_t steps_ = 0;
};

class HeadScanGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(HeadScanGolden, TheLargestLogitIsTheHeadsOwn) {
  const std::optional<std::string> path = GoldenModelPath(GetParam());
  if (!path) return;
  Scanned model(*path);
  ASSERT_NE(model.weights().head_sketch(), nullptr);
  uint32_t step = 1;
  for (const GoldenRow& row : LoadGoldenRows(GetParam())) {
    ASSERT_NO_FATAL_FAILURE(model.Check(row.tokens, step, 20)) << row.label;
    step = step % kRows + 1;
  }
  Rng rng(1);
  std::vector<TokenId> any;
  for (int i = 0; i < 1000; ++i) {
    any.push_back(TokenId{static_cast<int32_t>(rng.Below(model.config().vocab_size))});
  }
  ASSERT_NO_FATAL_FAILURE(model.Check(any, kRows, 0));
  EXPECT_GT(model.positions(), 1000u);
  RecordProperty("positions", static_cast<int>(model.positions()));
}

// Bytes of a greedy decode step, against those with the whole head. One worker: with several it
// depends on who is faster how good a logit each knows of when it rules out others.
TEST_P(HeadScanGolden, GreedyDecodingReadsLess) {
  const std::optional<std::string> path = GoldenModelPath(GetParam());
  if (!path) return;
  Scanned model(*path, 1);
  const std::vector<TokenId> begin = {LoadGoldenRows(GetParam()).front().tokens.front()};
  ASSERT_NO_FATAL_FAILURE(model.Check(begin, 1, 100));
  EXPECT_LT(model.bytes_a_step(), 0.9 * static_cast<double>(model.weights().step_bytes()));
  RecordProperty("megabytes_a_step", std::to_string(model.bytes_a_step() / 1e6));
}

INSTANTIATE_TEST_SUITE_P(Models, HeadScanGolden, ::testing::Values(kSmolLm2, kGemma3));

}  // namespace
}  // namespace kvasir
