#include "engine/sampler.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "engine/counter_random.h"
#include "kernels/isa.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TokenId Id(int id) { return TokenId{id}; }

int SampleOnce(const SamplingOptions& options, const std::vector<float>& logits,
               uint64_t position = 0) {
  const uint32_t vocab = static_cast<uint32_t>(logits.size());
  SamplerScratch scratch(vocab);
  return Index(Sampler(options, vocab, 64).Sample(logits, position, scratch));
}

std::vector<int> CountSamples(const Sampler& sampler, const std::vector<float>& logits, int draws) {
  SamplerScratch scratch(static_cast<uint32_t>(logits.size()));
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) {
    ++counts[static_cast<size_t>(Index(sampler.Sample(logits, static_cast<uint64_t>(i), scratch)))];
  }
  return counts;
}

double ChiSquare(const std::vector<int>& counts, const std::vector<double>& probabilities,
                 int draws) {
  double sum = 0.0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probabilities[i] == 0.0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was masked out";
      continue;
    }
    const double expected = probabilities[i] * draws;
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp((double{logit} - max) / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= total;
  return p;
}

TEST(ExpNonPositive, AgreesWithTheMathLibrary) {
  for (double x = 0.0; x > -708.0; x -= 0.0937) {
    const double want = std::exp(x);
    ASSERT_NEAR(ExpNonPositive(x) / want, 1.0, 1e-14) << x;
  }
  EXPECT_EQ(ExpNonPositive(0.0), 1.0);
  EXPECT_EQ(ExpNonPositive(-1000.0), 0.0);
  EXPECT_EQ(ExpNonPositive(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_EQ(ExpNonPositive(std::nan("")), 0.0);
}

TEST(Sampler, GreedyTakesTheLargestAndTiesGoToTheLowestId) {
  SamplingOptions greedy;
  EXPECT_EQ(SampleOnce(greedy, {1.0f, 3.0f, 2.0f, 3.0f}), 1);
  EXPECT_EQ(SampleOnce(greedy, {-kInfinity, -5.0f, -kInfinity}), 1);
  EXPECT_EQ(SampleOnce(greedy, {std::nanf(""), -5.0f, -6.0f}), 1);
  greedy.temperature = 1e-6f;  // Counts as zero.
  EXPECT_EQ(SampleOnce(greedy, {2.0f, 2.0f, 2.0f}), 0);
}

TEST(Sampler, RowsWithoutAFiniteMaximumDoNotCrash) {
  SamplingOptions options;
  options.temperature = 1.0f;
  EXPECT_EQ(SampleOnce(options, {-kInfinity, -kInfinity}), 0);
  EXPECT_EQ(SampleOnce(options, {std::nanf(""), std::nanf("")}), 0);
  EXPECT_EQ(SampleOnce(options, {0.0f, kInfinity, 1.0f}), 1);
}

TEST(Sampler, PlainTemperatureFollowsTheSoftmax) {
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 1.0f, 0.0f, 1.9f, -3.0f, 0.7f};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.seed = 11;
    const Sampler sampler(options, 8, 64);
    const int draws = 40000;
    const double chi_square = ChiSquare(CountSamples(sampler, logits, draws),
                                        Softmax(logits, static_cast<double>(temperature)), draws);
    EXPECT_LT(chi_square, 24.3) << temperature;  // 7 degrees of freedom, one in a thousand.
  }
}

TEST(Sampler, TopKRenormalises) {
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 1.0f, 0.0f, 1.9f, -3.0f, 0.7f};
  SamplingOptions options;
  options.temperature = 1.0f;
  options.top_k = 3;
  const int draws = 20000;
  std::vector<float> masked(8, -kInfinity);
  for (const size_t i : {1u, 3u, 5u}) masked[i] = logits[i];
  EXPECT_LT(
      ChiSquare(CountSamples(Sampler(options, 8, 64), logits, draws), Softmax(masked, 1.0), draws),
      13.8);  // 2 degrees of freedom.
}

TEST(Sampler, TopPKeepsTheTokenThatCrossesTheThreshold) {
  // 0.5, 0.3, 0.15, 0.05: top_p 0.7 needs the first two.
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f),
                                     std::log(0.3f)};
  SamplingOptions options;
  options.temperature = 1.0f;
  options.top_p = 0.7f;
  const int draws = 20000;
  EXPECT_LT(ChiSquare(CountSamples(Sampler(options, 4, 64), logits, draws),
                      {0.0, 0.625, 0.0, 0.375}, draws),
            10.8);        // 1 degree of freedom.
  options.top_p = 1e-6f;  // The best token always stays.
  EXPECT_EQ(CountSamples(Sampler(options, 4, 64), logits, 100)[1], 100);
}

TEST(Sampler, TopPCountsTheMassThatTopKLeft) {
  // After top_k 2 the shares are 0.625 and 0.375: top_p 0.6 then leaves one token. The other order
  // (nucleus 0.6 of everything = two tokens, then top_k 2) would leave two.
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f),
                                     std::log(0.3f)};
  SamplingOptions options;
  options.temperature = 1.0f;
  options.top_k = 2;
  options.top_p = 0.6f;
  EXPECT_EQ(CountSamples(Sampler(options, 4, 64), logits, 200)[1], 200);
}

TEST(Sampler, MinPIsRelativeToTheBestAfterTemperature) {
  // Weights 1, 0.5, 0.1 at temperature 1; 1, 0.25, 0.01 at temperature 0.5.
  const std::vector<float> logits = {0.0f, std::log(0.5f), std::log(0.1f)};
  SamplingOptions options;
  options.temperature = 1.0f;
  options.min_p = 0.3f;
  const int draws = 9000;
  EXPECT_LT(ChiSquare(CountSamples(Sampler(options, 3, 64), logits, draws), {2 / 3.0, 1 / 3.0, 0.0},
                      draws),
            10.8);
  options.temperature = 0.5f;
  EXPECT_EQ(CountSamples(Sampler(options, 3, 64), logits, 200)[0], 200);
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  SamplingOptions options;
  options.repetition_penalty = 2.0f;
  SamplerScratch scratch(3);
  Sampler sampler(options, 3, 64);
  const std::vector<TokenId> prompt = {Id(0)};
  EXPECT_EQ(sampler.Sample(std::vector<float>{4.0f, 2.1f, 0.0f}, 0, scratch), Id(0));
  sampler.NotePrompt(prompt);
  EXPECT_EQ(sampler.Sample(std::vector<float>{4.0f, 2.1f, 0.0f}, 0, scratch), Id(1));     // 2.0
  EXPECT_EQ(sampler.Sample(std::vector<float>{4.4f, 2.1f, 0.0f}, 0, scratch), Id(0));     // 2.2
  EXPECT_EQ(sampler.Sample(std::vector<float>{-1.0f, -1.9f, -9.0f}, 0, scratch), Id(1));  // -2.0
}

TEST(Sampler, PresenceAndFrequencyIgnoreThePromptAndCountTheAnswer) {
  SamplingOptions options;
  options.presence_penalty = 1.0f;
  options.frequency_penalty = 0.5f;
  SamplerScratch scratch(2);
  Sampler sampler(options, 2, 64);
  const std::vector<TokenId> prompt = {Id(0), Id(0), Id(0)};
  sampler.NotePrompt(prompt);
  EXPECT_EQ(sampler.Sample(std::vector<float>{1.0f, 0.9f}, 0, scratch), Id(0));
  sampler.NoteGenerated(Id(0));  // -1.5
  EXPECT_EQ(sampler.Sample(std::vector<float>{2.6f, 1.0f}, 0, scratch), Id(0));
  EXPECT_EQ(sampler.Sample(std::vector<float>{2.4f, 1.0f}, 0, scratch), Id(1));
  sampler.NoteGenerated(Id(0));  // -2.0
  EXPECT_EQ(sampler.Sample(std::vector<float>{2.9f, 1.0f}, 0, scratch), Id(1));
  EXPECT_EQ(sampler.Sample(std::vector<float>{3.1f, 1.0f}, 0, scratch), Id(0));
}

TEST(Sampler, BiasComesBeforeTheRepetitionPenalty) {
  // Bias first: (1 + 3) / 2 = 2 < 2.5. Penalty first: 1 / 2 + 3 = 3.5 > 2.5.
  SamplingOptions options;
  options.repetition_penalty = 2.0f;
  options.logit_bias = {{Id(0), 3.0f}};
  SamplerScratch scratch(2);
  Sampler sampler(options, 2, 64);
  sampler.NoteGenerated(Id(0));
  EXPECT_EQ(sampler.Sample(std::vector<float>{1.0f, 2.5f}, 0, scratch), Id(1));
}

TEST(Sampler, BannedTokensAreNeverChosen) {
  SamplingOptions options;
  options.logit_bias = {{Id(2), -kInfinity}, {Id(0), -kInfinity}};
  const std::vector<float> logits = {1.0f, 0.0f, 50.0f, 0.5f};
  EXPECT_EQ(SampleOnce(options, logits), 3);
  options.temperature = 5.0f;
  const std::vector<int> counts = CountSamples(Sampler(options, 4, 64), logits, 2000);
  EXPECT_EQ(counts[0], 0);
  EXPECT_EQ(counts[2], 0);
  EXPECT_GT(counts[1], 0);
}

TEST(Sampler, ADrawDependsOnSeedChoiceAndPositionOnly) {
  Rng rng(3);
  std::vector<float> logits(100);
  for (float& logit : logits) logit = rng.Normal();
  SamplingOptions options;
  options.temperature = 1.0f;
  options.seed = 41;
  options.choice = 1;
  SamplingOptions alone = options;
  alone.seed = 42;
  alone.choice = 0;
  const Sampler second_choice(options, 100, 64);
  const Sampler same_alone(alone, 100, 64);
  SamplerScratch scratch(100);
  int different_positions = 0;
  for (uint64_t position = 0; position < 50; ++position) {
    const TokenId token = second_choice.Sample(logits, position, scratch);
    EXPECT_EQ(token, same_alone.Sample(logits, position, scratch));
    EXPECT_EQ(token, second_choice.Sample(logits, position, scratch));
    if (token != second_choice.Sample(logits, position + 1, scratch)) ++different_positions;
  }
  EXPECT_GT(different_positions, 30);
}

// The definition in a screenful: adjust, sort everything, cut, and say which interval of [0, 1)
// belongs to each token.
struct Interval {
  double begin;
  double end;
};
std::map<int, Interval> DefinitionOfDistribution(const SamplingOptions& options,
                                                 const std::vector<float>& logits) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const double best = logits[static_cast<size_t>(order[0])];
  std::vector<double> weights;
  for (const int id : order) {
    const double weight =
        std::exp((double{logits[static_cast<size_t>(id)]} - best) / double{options.temperature});
    if (weight < double{options.min_p}) break;
    if (options.top_k > 0 && weights.size() == options.top_k) break;
    weights.push_back(weight);
  }
  const double mass = std::accumulate(weights.begin(), weights.end(), 0.0);
  double nucleus = 0.0;
  size_t kept = 0;
  while (kept < weights.size() && (options.top_p == 1.0f || nucleus < double{options.top_p} * mass))
    nucleus += weights[kept++];
  std::map<int, Interval> intervals;
  double begin = 0.0;
  for (size_t rank = 0; rank < kept; ++rank) {
    intervals[order[rank]] = {begin, begin + weights[rank] / nucleus};
    begin += weights[rank] / nucleus;
  }
  return intervals;
}

TEST(SamplerProperty, AgreesWithTheDefinition) {
  // Total mass comes from a float sum good to 1e-5, so a draw that close to a border may go either
  // way, as may the last token of a nucleus.
  constexpr double kSlack = 1e-4;
  for (const uint64_t seed : TestSeeds(/*count=*/300)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    std::vector<float> logits(static_cast<size_t>(rng.Between(1, 3000)));
    const float spread = rng.Below(2) == 0 ? 0.3f : 4.0f;  // Flat rows need several windows.
    for (float& logit : logits) logit = spread * rng.Normal();
    if (rng.Below(4) == 0) logits[0] = -kInfinity;
    SamplingOptions options;
    options.seed = rng.Next();
    options.temperature = 0.1f + 2.0f * static_cast<float>(rng.Uniform());
    if (rng.Below(2) == 0) options.top_k = static_cast<uint32_t>(rng.Between(1, 200));
    if (rng.Below(2) == 0) options.top_p = 0.05f + 0.9f * static_cast<float>(rng.Uniform());
    if (rng.Below(3) == 0) options.min_p = static_cast<float>(rng.Uniform()) * 0.3f;
    const std::map<int, Interval> want = DefinitionOfDistribution(options, logits);
    const Sampler sampler(options, static_cast<uint32_t>(logits.size()), 64);
    SamplerScratch scratch(static_cast<uint32_t>(logits.size()));
    for (uint64_t position = 0; position < 20; ++position) {
      const int got = Index(sampler.Sample(logits, position, scratch));
      const double uniform = UniformAt(options.seed, position);
      const auto interval = want.find(got);
      if (interval == want.end()) {
        ASSERT_GT(uniform, 1.0 - kSlack) << "token " << got << " is outside the kept set";
        continue;
      }
      ASSERT_GE(uniform, interval->second.begin - kSlack);
      ASSERT_LE(uniform, interval->second.end + kSlack);
    }
  }
}

// Tokens that are not noted yet count as if they were: to the bit.
TEST(SamplerProperty, AheadIsAsGoodAsNoted) {
  constexpr uint32_t kVocab = 50;
  for (const uint64_t seed : TestSeeds(/*count=*/300)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    SamplingOptions options;
    options.seed = rng.Next();
    options.temperature = rng.Below(3) == 0 ? 0.0f : 1.0f;
    if (rng.Below(2) == 0) options.repetition_penalty = 0.7f + static_cast<float>(rng.Uniform());
    if (rng.Below(2) == 0) options.presence_penalty = 2.0f * static_cast<float>(rng.Uniform());
    if (rng.Below(2) == 0) options.frequency_penalty = static_cast<float>(rng.Uniform()) - 0.5f;
    if (rng.Below(3) == 0) options.logit_bias = {{TokenId{3}, 2.0f}, {TokenId{7}, -1.0f}};
    const auto random_tokens = [&](uint64_t most) {
      std::vector<TokenId> tokens(rng.Below(most));
      for (TokenId& token : tokens) token = TokenId{static_cast<int32_t>(rng.Below(12))};
      return tokens;
    };
    const std::vector<TokenId> prompt = random_tokens(10), before = random_tokens(10);
    const std::vector<TokenId> ahead = random_tokens(16);
    Sampler behind(options, kVocab, 64), noted(options, kVocab, 64);
    for (Sampler* sampler : {&behind, &noted}) {
      sampler->NotePrompt(prompt);
      for (const TokenId token : before) sampler->NoteGenerated(token);
    }
    for (const TokenId token : ahead) noted.NoteGenerated(token);
    SamplerScratch scratch_a(kVocab), scratch_b(kVocab);
    for (uint64_t position = 0; position < 10; ++position) {
      std::vector<float> logits(kVocab);
      for (float& logit : logits) logit = 2.0f * rng.Normal();
      EXPECT_EQ(behind.Sample(logits, position, scratch_a, {}, ahead),
                noted.Sample(logits, position, scratch_b));
      if (!options.has_penalties()) continue;
      EXPECT_TRUE(scratch_a.adjusted == scratch_b.adjusted || (before.empty() && prompt.empty()));
    }
  }
}

TEST(Sampler, InstructionSetsChooseTheSameTokens) {
  Rng rng(17);
  std::vector<float> logits(49152);
  for (float& logit : logits) logit = 3.0f * rng.Normal();
  SamplingOptions options;
  options.temperature = 1.3f;
  options.top_p = 0.98f;
  const Sampler sampler(options, 49152, 64);
  SamplerScratch scratch(49152);
  const Isa before = ActiveIsa();
  std::map<uint64_t, TokenId> first;
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    for (uint64_t position = 0; position < 20; ++position) {
      const TokenId token = sampler.Sample(logits, position, scratch);
      EXPECT_EQ(first.try_emplace(position, token).first->second, token) << IsaName(isa);
    }
  }
  SetActiveIsa(before);
}

TEST(ReportLogProbs, AreOfTheRawLogits) {
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f),
                                     std::log(0.3f)};
  SamplerScratch scratch(4);
  const LogProbReport report = ReportLogProbs(logits, Id(2), 2, scratch);
  EXPECT_NEAR(report.log_prob, std::log(0.05), 1e-5);
  ASSERT_EQ(report.top.size(), 2u);
  EXPECT_EQ(report.top[0].token, Id(1));
  EXPECT_NEAR(report.top[0].log_prob, std::log(0.5), 1e-5);
  EXPECT_EQ(report.top[1].token, Id(3));
  EXPECT_TRUE(ReportLogProbs(logits, Id(0), 0, scratch).top.empty());
  EXPECT_EQ(ReportLogProbs(logits, Id(0), 100, scratch).top.size(), 4u);
}

TEST(SamplingOptions, ValidateNamesTheBrokenValue) {
  const auto message = [](auto change) {
    SamplingOptions options;
    change(options);
    const Status status = options.Validate(/*vocab_size=*/10);
    return std::string(MessageOf(status));
  };
  EXPECT_EQ(message([](SamplingOptions&) {}), "");
  EXPECT_NE(message([](SamplingOptions& o) { o.temperature = -1.0f; }).find("temperature is -1"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) { o.temperature = std::nanf(""); }).find("temperature"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) { o.temperature = kInfinity; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) { o.top_p = 0.0f; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) { o.top_p = 1.01f; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) { o.min_p = -0.1f; }).find("min_p"), std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) { o.repetition_penalty = 0.0f; }).find("repetition"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) { o.presence_penalty = 2.5f; }).find("presence"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) { o.frequency_penalty = -3.0f; }).find("frequency"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) {
              o.logit_bias = {{Id(10), 1.0f}};
            }).find("token 10"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) {
              o.logit_bias = {{Id(-1), 1.0f}};
            }).find("token -1"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) {
              o.logit_bias = {{Id(1), kInfinity}};
            }).find("inf"),
            std::string::npos);
  EXPECT_NE(message([](SamplingOptions& o) {
              o.logit_bias = {{Id(1), 1.0f}, {Id(2), 1.0f}, {Id(1), 0.0f}};
            }).find("twice"),
            std::string::npos);
  EXPECT_EQ(message([](SamplingOptions& o) { o.logit_bias = {{Id(9), -kInfinity}}; }), "");
}

}  // namespace
}  // namespace kvasir
