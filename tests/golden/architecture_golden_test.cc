// Every architecture and variant against the float64 oracle, on small random models: the reference
// pass to 5e-4 in every logit, the fast path to what half-precision KV (and, with quantized
// weights, int8 activations) leave.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/gguf_writer_for_test.h"
#include "model/reference_forward.h"
#include "tests/golden/golden_model.h"
#include "tests/golden/tiny_variants.h"

namespace kvasir {
namespace {

constexpr double kReferenceTolerance = 5e-4;
// Relative to the largest logit of the row, for every 8 layers: rounding of K and V to half
// precision grows from layer to layer of a random model.
constexpr double kFloatTolerance = 5e-3;
constexpr double kQuantizedKl = 0.0075;  // As on the real models (fast_path_golden_test.cc).

const std::vector<TinyVariant>& Variants() {
  static const std::vector<TinyVariant> variants = LoadTinyVariants();
  return variants;
}

double LogSumExpOf(std::span<const double> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

double Divergence(std::span<const double> p, std::span<const double> q) {
  const double p_sum = LogSumExpOf(p);
  const double q_sum = LogSumExpOf(q);
  double kl = 0.0;
  for (size_t i = 0; i < p.size(); ++i) {
    kl += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
  }
  return kl;
}

double LargestError(std::span<const double> expected, std::span<const double> got) {
  double worst = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(expected[i] - got[i]);
    worst = error > worst || std::isnan(error) ? error : worst;
  }
  return worst;
}

struct Read {
  GgufFile file;
  ModelConfig config;
};

Read ReadVariant(const TinyVariant& variant) {
  auto file = GgufFile::Parse(BytesOf(variant.file));
  EXPECT_TRUE(file.ok()) << MessageOf(file.status());
  auto config = ReadModelConfig(*file, variant.run_context);
  EXPECT_TRUE(config.ok()) << MessageOf(config.status());
  return {*std::move(file), *std::move(config)};
}

TEST(ArchitectureGolden, ModelsAreTheOnesTheOracleSaw) {
  ASSERT_GE(Variants().size(), 30u);
  for (const TinyVariant& variant : Variants())
    EXPECT_TRUE(variant.checksum_matches) << variant.name;
}

TEST(ArchitectureGolden, ReferencePassAgreesWithTheOracle) {
  for (const TinyVariant& variant : Variants()) {
    SCOPED_TRACE(variant.name);
    const Read model = ReadVariant(variant);
    const ReferenceModel reference(model.file, model.config, 2);
    const auto logits = reference.Logits(variant.tokens, variant.positions);
    ASSERT_TRUE(logits.ok()) << MessageOf(logits.status());
    double worst = 0.0;
    for (size_t i = 0; i < variant.positions.size(); ++i) {
      worst = std::max(worst, LargestError(variant.logits[i], (*logits)[i]));
    }
    std::printf("  %-20s reference: max |error| %.1e\n", variant.name.c_str(), worst);
    EXPECT_LE(worst, kReferenceTolerance);
  }
}

// Logits of all positions of the fast path, in double.
std::vector<std::vector<double>> FastLogits(const TinyVariant& variant, const Read& model,
                                            KvTypes types) {
  WorkerTeam team(2);
  const auto weights = Weights::Load(model.file, model.config, team, {});
  EXPECT_TRUE(weights.ok());
  StepLimits limits;
  limits.max_rows = 16;
  limits.max_logits_rows = 16;
  const auto runner = CpuModelRunner::Create(model.config, *weights, 16, limits, team, types);
  EXPECT_TRUE(runner.ok());
  const PlainKv kv((*runner)->kv_layout(), static_cast<uint32_t>(variant.tokens.size()));
  std::vector<std::vector<double>> logits;
  RunInChunks(**runner, kv, variant.tokens, 16, 0, [&](uint32_t, std::span<const float> row) {
    logits.emplace_back(row.begin(), row.end());
  });
  return logits;
}

TEST(ArchitectureGolden, FastPathAgreesWithTheOracle) {
  for (const TinyVariant& variant : Variants()) {
    SCOPED_TRACE(variant.name);
    const Read model = ReadVariant(variant);
    const auto logits = FastLogits(variant, model, {});
    double worst = 0.0, kl = 0.0;
    for (size_t i = 0; i < variant.positions.size(); ++i) {
      const std::vector<double>& expected = variant.logits[i];
      const double largest = std::max(*std::max_element(expected.begin(), expected.end()),
                                      -*std::min_element(expected.begin(), expected.end()));
      const std::vector<double>& got = logits[variant.positions[i]];
      worst = std::max(worst, LargestError(expected, got) / largest);
      kl += Divergence(expected, got) / static_cast<double>(variant.positions.size());
    }
    std::printf("  %-20s fast: max |error| / max |logit| %.1e, mean KL %.1e\n",
                variant.name.c_str(), worst, kl);
    if (!variant.is_quantized) {
      EXPECT_LE(worst, kFloatTolerance * std::max(1.0, model.config.layer_count / 8.0));
    }
    EXPECT_LE(kl, kQuantizedKl);
  }
}

}  // namespace
}  // namespace kvasir
