// The bounds of HeadSketch against the logits that the head itself computes: never below, on every
// instruction set, for ordinary and for hostile weights and activations; and tight enough to be of
// use.
#include "kernels/head_sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "kernels/isa.h"
#include "kernels/q8_file_for_test.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A head, its sketch, and both sides of the inequality.
class Head {
 public:
  Head(std::vector<std::byte> file, uint32_t rows, uint32_t cols,
       const std::vector<float>& channel_weights)
      : rows_(rows), cols_(cols), file_(std::move(file)) {
    const size_t bytes =
        (rows + kPanelRows - 1) / kPanelRows * PackedPanelBytes(WeightFormat::kQ8_0, cols);
    packed_ = *HugeBuffer::Allocate(bytes);
    matrix_ = {WeightFormat::kQ8_0, rows, cols, packed_.data()};
    PackPanels(WeightFormat::kQ8_0, file_, rows, cols, 0, matrix_.panel_count(), packed_.bytes());
    sketch_.emplace(*HeadSketch::Create(file_, rows, cols, channel_weights));
    // In two uneven parts, as threads do.
    const uint32_t middle = matrix_.panel_count() / 3;
    built_ = sketch_->BuildPanels(file_, middle, matrix_.panel_count()) &&
             sketch_->BuildPanels(file_, 0, middle);
  }

  bool built() const { return built_; }
  const HeadSketch& sketch() const { return *sketch_; }
  const PackedMatrix& matrix() const { return matrix_; }

  // Logits and bounds [h rows][rows] of activation rows h; false entries of `proven` have no bound.
  void Compute(const std::vector<std::vector<float>>& h) {
    const uint32_t count = static_cast<uint32_t>(h.size());
    HugeBuffer quantized = *HugeBuffer::Allocate(ActivationBytes(count, cols_));
    HugeBuffer prepared = *HugeBuffer::Allocate(sketch_->PreparedBytes(count));
    const Activations input{count, cols_, nullptr, quantized.data()};
    logits.assign(size_t{count} * rows_, 0.0f);
    bounds.assign(size_t{count} * rows_, 0.0f);
    proven.assign(count, false);
    for (uint32_t r = 0; r < count; ++r) {
      QuantizeRow(h[r], r, input);
      proven[r] = sketch_->PrepareRow(h[r], r, count, prepared.data());
    }
    MatMulPanels(matrix_, input, 0, matrix_.panel_count(), Store::kAssign, logits.data(), rows_);
    sketch_->BoundPanels(count, prepared.data(), 0, matrix_.panel_count(), bounds.data(), rows_);
  }

  // Violations among the rows with a bound.
  size_t Violations() const {
    size_t count = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (proven[i / rows_] && !(bounds[i] >= logits[i])) ++count;
    }
    return count;
  }

  std::vector<float> logits;
  std::vector<float> bounds;
  std::vector<bool> proven;

 private:
  uint32_t rows_;
  uint32_t cols_;
  std::vector<std::byte> file_;
  HugeBuffer packed_;
  PackedMatrix matrix_;
  std::optional<HeadSketch> sketch_;
  bool built_ = false;
};

std::vector<float> Normals(Rng& rng, size_t count, float deviation) {
  std::vector<float> out(count);
  for (float& v : out) v = rng.Normal() * deviation;
  return out;
}

// Activations as a final norm makes them: a few channels much larger than the others.
std::vector<float> Activation(Rng& rng, const std::vector<float>& channel_weights) {
  std::vector<float> h(channel_weights.size());
  for (size_t c = 0; c < h.size(); ++c) h[c] = rng.Normal() * channel_weights[c];
  return h;
}

std::vector<float> ChannelWeights(Rng& rng, uint32_t cols) {
  std::vector<float> weights(cols, 1.0f);
  for (uint32_t c = 0; c < cols / 10; ++c) weights[rng.Below(cols)] = 3.0f + rng.Normal();
  return weights;
}

class HeadSketchTest : public ::testing::Test {
 protected:
  ~HeadSketchTest() override { SetActiveIsa(SupportedIsas().back()); }
};

TEST_F(HeadSketchTest, SuitsEightBitHeadsOnly) {
  EXPECT_TRUE(HeadSketch::Suits(WeightFormat::kQ8_0, 640));
  EXPECT_TRUE(HeadSketch::Suits(WeightFormat::kQ8_0, 128));
  EXPECT_FALSE(HeadSketch::Suits(WeightFormat::kQ8_0, 64));
  EXPECT_FALSE(HeadSketch::Suits(WeightFormat::kQ8_0, 8192));
  EXPECT_FALSE(HeadSketch::Suits(WeightFormat::kQ6_K, 640));
}

TEST_F(HeadSketchTest, BoundsEveryLogitOnEveryInstructionSet) {
  for (const uint64_t seed : TestSeeds(6)) {
    Rng rng(seed);
    const uint32_t cols = static_cast<uint32_t>(32 * rng.Between(4, 40));
    const uint32_t rows = static_cast<uint32_t>(rng.Between(1, 400));
    const std::vector<float> weights = ChannelWeights(rng, cols);
    std::vector<float> bounds;
    for (const Isa isa : SupportedIsas()) {
      SetActiveIsa(isa);
      Rng own(seed + 1);
      Head head(Q8FileOf(Normals(own, size_t{rows} * cols, 0.03f)), rows, cols, weights);
      ASSERT_TRUE(head.built());
      std::vector<std::vector<float>> h;
      const uint64_t batch = own.Between(1, 14);
      for (uint64_t r = 0; r < batch; ++r) h.push_back(Activation(own, weights));
      head.Compute(h);
      EXPECT_EQ(std::count(head.proven.begin(), head.proven.end(), true), h.size());
      ASSERT_EQ(head.Violations(), 0u) << "seed " << seed << " cols " << cols;
      if (isa == SupportedIsas().front()) bounds = head.bounds;
      EXPECT_EQ(bounds, head.bounds) << IsaName(isa);
    }
  }
}

// The bound must also be worth something: far nearer to the logit than |w| |a|.
TEST_F(HeadSketchTest, TheMarginIsSmall) {
  Rng rng(5);
  const uint32_t rows = 2048, cols = 640;
  const std::vector<float> weights = ChannelWeights(rng, cols);
  Head head(Q8FileOf(Normals(rng, size_t{rows} * cols, 0.04f)), rows, cols, weights);
  const std::vector<float> h = Activation(rng, weights);
  head.Compute({h});
  double h_square = 0;
  for (const float v : h) h_square += double{v} * v;
  const double product = std::sqrt(h_square) * 0.04 * std::sqrt(640.0);
  for (uint32_t o = 0; o < rows; ++o) {
    ASSERT_LT(head.bounds[o] - head.logits[o], 0.2 * product) << o;
  }
  EXPECT_LT(head.sketch().panel_bytes(), PackedPanelBytes(WeightFormat::kQ8_0, cols) * 2 / 3);
}

TEST_F(HeadSketchTest, BatchesAndRangesDoNotChangeABound) {
  Rng rng(9);
  const uint32_t rows = 100, cols = 256;
  const std::vector<float> weights = ChannelWeights(rng, cols);
  Head head(Q8FileOf(Normals(rng, size_t{rows} * cols, 0.05f)), rows, cols, weights);
  std::vector<std::vector<float>> h;
  for (int r = 0; r < 8; ++r) h.push_back(Activation(rng, weights));
  head.Compute(h);
  const std::vector<float> together = head.bounds;
  for (size_t r = 0; r < h.size(); ++r) {
    head.Compute({h[r]});
    EXPECT_TRUE(std::equal(head.bounds.begin(), head.bounds.end(),
                           together.begin() + static_cast<std::ptrdiff_t>(r * rows)));
  }
}

// Outliers of a thousand times the rest, zero rows and blocks, equal rows, rows of one value.
TEST_F(HeadSketchTest, HostileRowsStayBounded) {
  for (const uint64_t seed : TestSeeds(12)) {
    Rng rng(seed);
    const uint32_t rows = 333, cols = static_cast<uint32_t>(32 * rng.Between(4, 24));
    std::vector<float> values = Normals(rng, size_t{rows} * cols, 0.05f);
    for (uint32_t o = 0; o < rows; ++o) {
      const auto row = values.begin() + static_cast<std::ptrdiff_t>(size_t{o} * cols);
      switch (rng.Below(6)) {
        case 0:
          row[static_cast<std::ptrdiff_t>(rng.Below(cols))] = rng.Below(2) == 0 ? 50.0f : -50.0f;
          break;
        case 1:
          std::fill(row, row + cols, 0.0f);
          break;
        case 2:
          std::fill(row, row + 32, 0.0f);
          break;
        case 3:
          std::fill(row, row + cols, 0.7f);
          break;
        case 4:
          for (uint32_t c = 0; c < cols; ++c) row[c] = c % 2 == 0 ? 0.1f : -0.1f;
          break;
        default:
          break;
      }
    }
    const std::vector<float> weights = ChannelWeights(rng, cols);
    Head head(Q8FileOf(values), rows, cols, weights);
    ASSERT_TRUE(head.built());
    std::vector<std::vector<float>> h;
    for (int r = 0; r < 6; ++r) h.push_back(Activation(rng, weights));
    for (float& v : h[1]) v = v < 0 ? -1.0f : 1.0f;
    std::fill(h[2].begin(), h[2].end(), 0.0f);
    h[2][rng.Below(cols)] = 1000.0f;
    for (float& v : h[3]) v *= 1e-9f;
    for (float& v : h[4]) v *= 1e9f;
    // Along a row, so that Cauchy and Schwarz is nearly an equality.
    for (uint32_t c = 0; c < cols; ++c) h[5][c] = values[size_t{7} * cols + c];
    head.Compute(h);
    ASSERT_EQ(head.Violations(), 0u) << "seed " << seed;
  }
}

// Activations that point at what the sketch leaves out: the worst case of the inequality.
TEST_F(HeadSketchTest, ActivationsAlongTheRemainderStayBounded) {
  Rng rng(21);
  const uint32_t rows = 64, cols = 128;
  const std::vector<float> values = Normals(rng, size_t{rows} * cols, 0.05f);
  const std::vector<float> weights(cols, 1.0f);
  Head head(Q8FileOf(values), rows, cols, weights);
  for (uint32_t o = 0; o < rows; ++o) {
    // The remainder of a 4-bit code, as an outsider guesses it.
    std::vector<float> h(cols);
    for (uint32_t c = 0; c < cols; ++c) {
      float signed_largest = 0;
      for (uint32_t i = c / 32 * 32; i < c / 32 * 32 + 32; ++i) {
        const float v = values[size_t{o} * cols + i];
        if (std::abs(v) > std::abs(signed_largest)) signed_largest = v;
      }
      const float scale = signed_largest / -8;
      const float v = values[size_t{o} * cols + c];
      h[c] = v - scale * std::min(7.0f, std::max(-8.0f, std::round(v / scale)));
    }
    head.Compute({h});
    ASSERT_EQ(head.Violations(), 0u) << o;
  }
}

TEST_F(HeadSketchTest, ActivationsWithoutABoundAreToldApart) {
  Rng rng(2);
  const uint32_t rows = 32, cols = 128;
  const std::vector<float> weights(cols, 1.0f);
  Head head(Q8FileOf(Normals(rng, size_t{rows} * cols, 0.05f)), rows, cols, weights);
  std::vector<std::vector<float>> h(6, Activation(rng, weights));
  h[1][5] = kInf;
  h[2][100] = std::numeric_limits<float>::quiet_NaN();
  std::fill(h[3].begin(), h[3].end(), 0.0f);
  for (float& v : h[4]) v = 1e20f;
  head.Compute(h);
  EXPECT_EQ(head.proven, std::vector<bool>({true, false, false, false, false, true}));
  EXPECT_EQ(head.Violations(), 0u);
}

TEST_F(HeadSketchTest, WeightsWithoutABoundRefuseTheSketch) {
  Rng rng(3);
  const uint32_t rows = 40, cols = 128;
  const std::vector<float> values = Normals(rng, size_t{rows} * cols, 0.05f);
  const std::vector<float> weights(cols, 1.0f);
  for (const uint16_t half : {0x7C00, 0xFC00, 0x7E00}) {
    std::vector<std::byte> file = Q8FileOf(values);
    std::memcpy(&file[size_t{20} * 4 * 34], &half, 2);
    EXPECT_FALSE(Head(file, rows, cols, weights).built()) << half;
  }
}

}  // namespace
}  // namespace kvasir
