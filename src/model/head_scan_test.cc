// HeadScan against the whole head: the same largest logit, to the bit and to the lowest index among
// equals, whatever the weights, the batch and the team.
#include "model/head_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "kernels/logits_row.h"
#include "kernels/q8_file_for_test.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

struct Answer {
  uint32_t index;
  uint32_t value_bits;
  friend bool operator==(const Answer&, const Answer&) = default;
};

class ScannedHead {
 public:
  ScannedHead(const std::vector<float>& values, uint32_t rows, uint32_t cols, int workers,
              float cap = 0.0f)
      : rows_(rows), cols_(cols), cap_(cap), team_(workers) {
    const std::vector<std::byte> file = Q8FileOf(values);
    matrix_ = {WeightFormat::kQ8_0, rows, cols, nullptr};
    packed_ =
        *HugeBuffer::Allocate(matrix_.panel_count() * PackedPanelBytes(WeightFormat::kQ8_0, cols));
    matrix_.bytes = packed_.data();
    PackPanels(WeightFormat::kQ8_0, file, rows, cols, 0, matrix_.panel_count(), packed_.bytes());
    const std::vector<float> weights(cols, 1.0f);
    sketch_.emplace(*HeadSketch::Create(file, rows, cols, weights));
    EXPECT_TRUE(sketch_->BuildPanels(file, 0, matrix_.panel_count()));
    scan_.emplace(*HeadScan::Create(matrix_, *sketch_, team_, cap));
  }

  std::vector<Answer> Full(const std::vector<std::vector<float>>& h) {
    const Activations input = Quantize(h);
    std::vector<float> logits(h.size() * rows_);
    MatMulPanels(matrix_, input, 0, matrix_.panel_count(), Store::kAssign, logits.data(), rows_);
    if (cap_ != 0.0f) SoftCap(logits, cap_);
    return Answers(logits, h.size());
  }

  std::vector<Answer> Scanned(const std::vector<std::vector<float>>& h) {
    const Activations input = Quantize(h);
    std::vector<float> logits(h.size() * rows_, 1e30f);  // What an earlier step left.
    std::vector<uint64_t> bytes(static_cast<size_t>(team_.worker_count()));
    team_.Run([&](int worker) {
      bytes[static_cast<size_t>(worker)] = scan_->ArgMaxLogits(input, logits.data(), rows_, worker);
    });
    bytes_read = 0;
    for (const uint64_t count : bytes) bytes_read += count;
    return Answers(logits, h.size());
  }

  size_t head_bytes() const { return packed_.size(); }
  uint64_t bytes_read = 0;

 private:
  Activations Quantize(const std::vector<std::vector<float>>& h) {
    quantized_ = *HugeBuffer::Allocate(ActivationBytes(static_cast<uint32_t>(h.size()), cols_));
    values_.clear();
    for (const std::vector<float>& row : h) values_.insert(values_.end(), row.begin(), row.end());
    const Activations input{static_cast<uint32_t>(h.size()), cols_, values_.data(),
                            quantized_.data()};
    for (uint32_t r = 0; r < h.size(); ++r) QuantizeRow(h[r], r, input);
    return input;
  }
  std::vector<Answer> Answers(const std::vector<float>& logits, size_t count) const {
    std::vector<Answer> answers;
    for (size_t r = 0; r < count; ++r) {
      const std::span<const float> row(logits.data() + r * rows_, rows_);
      const uint32_t index = ArgMax(row);
      const float value = row[index];
      answers.push_back({index, std::isnan(value) ? 0u : std::bit_cast<uint32_t>(value)});
    }
    return answers;
  }

  uint32_t rows_;
  uint32_t cols_;
  float cap_;
  WorkerTeam team_;
  HugeBuffer packed_;
  std::vector<float> values_;
  HugeBuffer quantized_;
  PackedMatrix matrix_;
  std::optional<HeadSketch> sketch_;
  std::optional<HeadScan> scan_;
};

std::vector<float> Normals(Rng& rng, size_t count, float deviation) {
  std::vector<float> out(count);
  for (float& v : out) v = rng.Normal() * deviation;
  return out;
}

TEST(HeadScanTest, FindsTheLargestLogitOfEveryRow) {
  for (const uint64_t seed : TestSeeds(4)) {
    Rng rng(seed);
    const uint32_t rows = static_cast<uint32_t>(rng.Between(1, 5000));
    const uint32_t cols = static_cast<uint32_t>(32 * rng.Between(4, 12));
    const int workers = static_cast<int>(rng.Between(1, 3));
    const std::vector<float> values = Normals(rng, size_t{rows} * cols, 0.05f);
    ScannedHead head(values, rows, cols, workers);
    for (int step = 0; step < 60; ++step) {
      std::vector<std::vector<float>> h(rng.Between(1, HeadScan::kMaxRows));
      for (std::vector<float>& row : h) {
        row = Normals(rng, cols, 1.0f);
        // Some lie near a row of the head, as those of a model that is sure of itself.
        const size_t near = rng.Below(rows) * cols;
        const float pull = static_cast<float>(rng.Below(3)) * 20;
        for (uint32_t c = 0; c < cols; ++c) row[c] += pull * values[near + c];
      }
      ASSERT_EQ(head.Scanned(h), head.Full(h)) << "seed " << seed << " step " << step;
    }
  }
}

TEST(HeadScanTest, EqualAndNearlyEqualRowsKeepTheirOrder) {
  for (const uint64_t seed : TestSeeds(6)) {
    Rng rng(seed);
    const uint32_t rows = 3000, cols = 128;
    std::vector<float> values = Normals(rng, size_t{rows} * cols, 0.05f);
    const auto row = [&](uint32_t o) { return values.begin() + std::ptrdiff_t{o} * cols; };
    // Copies of one row all over the head, and copies with one value moved by a code or so.
    const uint32_t model = static_cast<uint32_t>(rng.Below(rows));
    const std::vector<float> original(row(model), row(model) + cols);
    for (int i = 0; i < 200; ++i) {
      const auto copy = row(static_cast<uint32_t>(rng.Below(rows)));
      std::copy(original.begin(), original.end(), copy);
      if (i % 2 == 1) copy[static_cast<std::ptrdiff_t>(rng.Below(cols))] *= 1.01f;
    }
    ScannedHead head(values, rows, cols, 2);
    for (int step = 0; step < 20; ++step) {
      std::vector<float> h = Normals(rng, cols, 0.3f);
      for (uint32_t c = 0; c < cols; ++c) h[c] += 20 * original[c];
      ASSERT_EQ(head.Scanned({h}), head.Full({h})) << "seed " << seed;
    }
  }
}

// Caps far below the logits make many of them equal, of which the first must win; caps of their
// size leave them apart.
TEST(HeadScanTest, CappedLogitsTieAndTheFirstWins) {
  int ties = 0;
  for (const uint64_t seed : TestSeeds(6)) {
    Rng rng(seed);
    const uint32_t rows = 3000, cols = 128;
    const float cap = seed % 3 == 0 ? 0.05f : seed % 3 == 1 ? 0.4f : 30.0f;
    const std::vector<float> values = Normals(rng, size_t{rows} * cols, 0.05f);
    ScannedHead head(values, rows, cols, 2, cap);
    ScannedHead plain(values, rows, cols, 2);
    for (int step = 0; step < 20; ++step) {
      std::vector<std::vector<float>> h(rng.Between(1, HeadScan::kMaxRows));
      for (std::vector<float>& row : h) row = Normals(rng, cols, rng.Below(2) == 0 ? 1.0f : 0.1f);
      // All logits negative: the largest is the one that is nearest to zero.
      if (step == 0) {
        for (std::vector<float>& row : h) std::fill(row.begin(), row.end(), 1e-3f);
      }
      const std::vector<Answer> scanned = head.Scanned(h);
      ASSERT_EQ(scanned, head.Full(h)) << "seed " << seed << " step " << step;
      ties += scanned[0].index != plain.Full(h)[0].index;
    }
  }
  EXPECT_GT(ties, 10);
}

TEST(HeadScanTest, RowsThatHaveNoBoundAreComputedInFull) {
  Rng rng(4);
  const uint32_t rows = 2000, cols = 128;
  ScannedHead head(Normals(rng, size_t{rows} * cols, 0.05f), rows, cols, 2);
  std::vector<std::vector<float>> h(5, Normals(rng, cols, 1.0f));
  std::fill(h[1].begin(), h[1].end(), 0.0f);
  h[2][3] = std::numeric_limits<float>::quiet_NaN();
  h[3][70] = -std::numeric_limits<float>::infinity();
  for (float& v : h[4]) v *= 1e25f;
  EXPECT_EQ(head.Scanned(h), head.Full(h));
  EXPECT_EQ(head.Scanned({h[1]}), head.Full({h[1]}));
  EXPECT_EQ(head.Scanned({h[0]}), head.Full({h[0]}));
}

TEST(HeadScanTest, ASureAnswerReadsLessThanTheHead) {
  Rng rng(8);
  const uint32_t rows = 20000, cols = 512;
  const std::vector<float> values = Normals(rng, size_t{rows} * cols, 0.05f);
  ScannedHead head(values, rows, cols, 2);
  std::vector<float> h = Normals(rng, cols, 0.2f);
  for (uint32_t c = 0; c < cols; ++c) h[c] += 10 * values[size_t{777} * cols + c];
  const std::vector<Answer> answer = head.Scanned({h});
  EXPECT_EQ(answer[0].index, 777u);
  EXPECT_EQ(answer, head.Full({h}));
  EXPECT_LT(head.bytes_read, head.head_bytes() * 70 / 100);
}

}  // namespace
}  // namespace kvasir
