#include "engine/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "model/fake_model_runner.h"

namespace kvasir {
namespace {

constexpr uint32_t kVocab = 40;

double PlainNll(const std::vector<float>& logits, TokenId target) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  return std::log(sum) - logits[static_cast<size_t>(Index(target))];
}

TEST(CutWindows, ScoresEachTokenOnceWithHalfAWindowBeforeIt) {
  for (const bool bos : {false, true}) {
    for (const uint32_t size : {16u, 17u, 64u, 512u}) {
      for (size_t tokens = 0; tokens < 1200; tokens += tokens < 40 ? 1 : 37) {
        const std::vector<PerplexityWindow> windows = CutWindows(tokens, size, bos);
        size_t scored = bos ? 0 : 1;
        for (size_t i = 0; i < windows.size(); ++i) {
          const PerplexityWindow& window = windows[i];
          ASSERT_EQ(window.scored_begin, scored);
          ASSERT_GT(window.end, scored);
          ASSERT_LE(window.end - window.begin + (bos ? 1 : 0), size);
          if (i > 0) {
            ASSERT_GE(scored - window.begin + (bos ? 1 : 0), size / 2 - 1);
          }
          scored = window.end;
        }
        ASSERT_EQ(scored, std::max<size_t>(tokens, bos ? 0 : 1)) << tokens << " in " << size;
      }
    }
  }
  EXPECT_TRUE(CutWindows(0, 16, true).empty());
  EXPECT_TRUE(CutWindows(1, 16, false).empty());
  EXPECT_EQ(CutWindows(1, 16, true).size(), 1u);
}

TEST(RunningMean, AgreesWithTwoPasses) {
  Rng rng(5);
  std::vector<double> values;
  RunningMean running;
  for (int i = 0; i < 500; ++i) {
    values.push_back(1e6 + static_cast<double>(rng.Below(1000)) / 7);
    running.Add(values.back());
  }
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / 500;
  for (const double value : values) squares += (value - mean) * (value - mean);
  EXPECT_NEAR(running.mean(), mean, 1e-6);
  EXPECT_NEAR(running.standard_error(), std::sqrt(squares / 499 / 500), 1e-6);
  RunningMean one;
  one.Add(3);
  EXPECT_EQ(one.standard_error(), 0);
}

TEST(CompareRows, KnownDistributions) {
  // Shifts of all logits change nothing; far from zero nothing overflows.
  const std::vector<float> base = {1000 + std::log(0.5f), 1000 + std::log(0.25f),
                                   1000 + std::log(0.25f)};
  const std::vector<float> row = {-1000 + std::log(0.25f), -1000 + std::log(0.5f),
                                  -1000 + std::log(0.25f)};
  const RowComparison out = CompareRows(base, row, TokenId{0});
  EXPECT_NEAR(out.base_nll, std::log(2.0), 1e-4);  // A float of size 1000 has steps of 6e-5.
  EXPECT_NEAR(out.nll, std::log(4.0), 1e-4);
  EXPECT_NEAR(out.kl, 0.5 * std::log(2.0) - 0.25 * std::log(2.0), 1e-4);
  EXPECT_FALSE(out.same_best);
  const RowComparison same = CompareRows(base, base, TokenId{1});
  EXPECT_EQ(same.kl, 0);
  EXPECT_EQ(same.nll, same.base_nll);
  EXPECT_TRUE(same.same_best);
  uint32_t best = 9;
  EXPECT_EQ(NegativeLogLikelihood(row, TokenId{0}, &best), out.nll);
  EXPECT_EQ(best, 1u);
  // What is impossible in both weighs nothing.
  const float never = -INFINITY;
  EXPECT_EQ(CompareRows(std::vector<float>{0, never}, std::vector<float>{0, never}, TokenId{0}).kl,
            0);
}

// Divergences much smaller than the logits' own size are not lost.
TEST(CompareRows, SmallDivergences) {
  std::vector<float> base(5000), row(5000);
  Rng rng(3);
  for (size_t i = 0; i < base.size(); ++i) {
    base[i] = 20 + static_cast<float>(rng.Below(1000)) / 64;
    row[i] = base[i] + (i % 2 == 0 ? 1.0f : -1.0f) / 1024;
  }
  // Second order: half the variance of the difference under the base.
  double sum = 0, mean = 0, square = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double weight = std::exp(double{base[i]} - 20);
    const double d = double{row[i]} - base[i];
    sum += weight;
    mean += weight * d;
    square += weight * d * d;
  }
  const double half_variance = (square / sum - mean / sum * mean / sum) / 2;
  EXPECT_NEAR(CompareRows(base, row, TokenId{0}).kl / half_variance, 1, 2e-3);
}

class PerplexityMeterTest : public ::testing::Test {
 protected:
  struct Parts {
    std::unique_ptr<FakeModelRunner> runner;
    std::unique_ptr<KvCache> kv;
    PerplexityMeter::Subject subject() const { return {runner.get(), kv.get()}; }
  };
  // Another window of attention makes other logits: a stand-in for another KV type.
  static Parts Make(uint32_t attention_window, uint32_t blocks = 8) {
    Parts parts;
    FakeModelRunner::Options options;
    options.vocab_size = kVocab;
    options.window = attention_window;
    options.limits = {24, 1, 7};
    parts.runner = std::make_unique<FakeModelRunner>(options);
    KvCache::Options kv;
    kv.layout = parts.runner->kv_layout();
    kv.block_counts = {blocks, blocks};
    kv.max_sequences = 1;
    kv.max_sequence_tokens = 64;
    parts.kv = std::move(KvCache::Create(kv)).value();
    return parts;
  }

  static std::vector<TokenId> Text(size_t length) {
    std::vector<TokenId> tokens;
    // Repeats itself, so that a cached prefix could be found.
    for (size_t i = 0; i < length; ++i) tokens.push_back(TokenId{static_cast<int32_t>(i % 32)});
    return tokens;
  }

  // From the definition, without KV.
  static RunningMean Expected(const FakeModelRunner& runner, const std::vector<TokenId>& text,
                              std::optional<TokenId> bos, uint32_t size) {
    RunningMean nll;
    for (const PerplexityWindow& window : CutWindows(text.size(), size, bos.has_value())) {
      for (size_t t = window.scored_begin; t < window.end; ++t) {
        std::vector<TokenId> before(text.begin() + static_cast<ptrdiff_t>(window.begin),
                                    text.begin() + static_cast<ptrdiff_t>(t));
        if (bos.has_value()) before.insert(before.begin(), *bos);
        nll.Add(PlainNll(runner.Logits(before), text[t]));
      }
    }
    return nll;
  }

  WorkerTeam team_{2};
};

TEST_F(PerplexityMeterTest, ScoresByTheDefinition) {
  for (const std::optional<TokenId> bos : {std::optional<TokenId>(), std::optional(TokenId{33})}) {
    for (const uint32_t size : {16u, 33u, 64u}) {
      for (const size_t length : {2u, 16u, 64u, 65u, 200u}) {
        const Parts parts = Make(24);
        PerplexityMeter meter({parts.subject()}, team_);
        const std::vector<TokenId> text = Text(length);
        size_t told = 0;
        const Status status = meter.Score(text, bos, size, [&](size_t scored) {
          EXPECT_GT(scored, told);
          told = scored;
          return true;
        });
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(told, length);
        const RunningMean want = Expected(*parts.runner, text, bos, size);
        EXPECT_EQ(meter.scores()[0].nll.count(), length - (bos.has_value() ? 0 : 1));
        EXPECT_NEAR(meter.scores()[0].nll.mean(), want.mean(), 1e-9);
        EXPECT_NEAR(meter.scores()[0].perplexity(), std::exp(want.mean()), 1e-6);
        EXPECT_NEAR(meter.scores()[0].standard_error(),
                    std::exp(want.mean()) * want.standard_error(), 1e-6);
        EXPECT_EQ(parts.kv->open_sequences(), 0u);
        parts.kv->CheckInvariants();
      }
    }
  }
}

TEST_F(PerplexityMeterTest, ComparesWithTheFirstSubject) {
  const Parts base = Make(24), twin = Make(24), other = Make(5);
  PerplexityMeter meter({base.subject(), twin.subject(), other.subject()}, team_);
  const std::vector<TokenId> text = Text(150);
  ASSERT_TRUE(meter.Score(text, std::nullopt, 48, nullptr).ok());
  const PerplexityScores &b = meter.scores()[0], &t = meter.scores()[1], &o = meter.scores()[2];
  EXPECT_EQ(t.perplexity(), b.perplexity());
  EXPECT_EQ(t.kl.mean(), 0);
  EXPECT_EQ(t.ratio(), 1);
  EXPECT_EQ(t.ratio_standard_error(), 0);
  EXPECT_EQ(t.top1_agreement(), 1);
  // The fake's logits after another window are unrelated.
  EXPECT_GT(o.kl.mean(), 0.1);
  EXPECT_LT(o.top1_agreement(), 0.6);
  EXPECT_GT(o.ratio_standard_error(), 0);
  EXPECT_NEAR(o.ratio(), o.perplexity() / b.perplexity(), 1e-9);
  EXPECT_NEAR(o.nll.mean(), Expected(*other.runner, text, std::nullopt, 48).mean(), 1e-9);
}

TEST_F(PerplexityMeterTest, StopsAndSaysWhy) {
  const Parts parts = Make(24);
  PerplexityMeter meter({parts.subject()}, team_);
  EXPECT_EQ(meter.Score(Text(200), std::nullopt, 65, nullptr).code(),
            StatusCode::kResourceExhausted);
  const Parts small = Make(24, 2);
  PerplexityMeter cramped({small.subject()}, team_);
  EXPECT_EQ(cramped.Score(Text(200), std::nullopt, 64, nullptr).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(small.kv->open_sequences(), 0u);
  EXPECT_EQ(meter.Score(Text(200), std::nullopt, 64, [](size_t) { return false; }).code(),
            StatusCode::kCancelled);
  EXPECT_EQ(parts.kv->open_sequences(), 0u);
}

}  // namespace
}  // namespace kvasir
