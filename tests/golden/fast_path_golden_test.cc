// The fast path against the float64 oracle, over every position of the golden rows.
//
// It multiplies int8 activations with the file's quantized weights, so it differs from the oracle
// by design; these bounds say by how much at most. The reference path is judged in
// reference_golden_test.cc.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/logits_row.h"
#include "kernels/row_ops.h"
#include "tests/golden/golden_model.h"

namespace kvasir {
namespace {

struct Agreement {
  double kl_sum = 0;
  double nll_difference_sum = 0;
  uint64_t top1 = 0;
  uint64_t positions = 0;
};

// KL(oracle || engine) over the oracle's listed tokens and one bucket for all the others.
double Divergence(const GoldenPosition& oracle, std::span<const float> logits, double logsumexp) {
  double kl = 0, p_listed = 0, q_listed = 0;
  for (size_t i = 0; i < oracle.ids.size(); ++i) {
    const double log_p = oracle.logits[i] - oracle.logsumexp;
    const double log_q = logits[oracle.ids[i]] - logsumexp;
    kl += std::exp(log_p) * (log_p - log_q);
    p_listed += std::exp(log_p);
    q_listed += std::exp(log_q);
  }
  const double p_rest = std::max(1e-12, 1 - p_listed), q_rest = std::max(1e-12, 1 - q_listed);
  return kl + p_rest * std::log(p_rest / q_rest);
}

Agreement Compare(const GoldenModel& model, const std::vector<GoldenRow>& rows) {
  WorkerTeam team(WorkerTeam::UsableCores());
  StepLimits limits;
  limits.max_rows = 64;
  limits.max_logits_rows = 64;
  const auto runner = CpuModelRunner::Create(model.config, model.weights, 16, limits, team);
  EXPECT_TRUE(runner.ok());
  Agreement agreement;
  for (const GoldenRow& row : rows) {
    const PlainKv kv((*runner)->kv_layout(), static_cast<uint32_t>(row.tokens.size()));
    double nll = 0, kl = 0;
    RunInChunks(**runner, kv, row.tokens, 64, 0,
                [&](uint32_t position, std::span<const float> logits) {
                  const uint32_t best = ArgMax(logits);
                  double sum = 0;
                  for (const float logit : logits) sum += std::exp(double{logit} - logits[best]);
                  const double logsumexp = logits[best] + std::log(sum);
                  kl += Divergence(row.every[position], logits, logsumexp);
                  agreement.top1 += best == row.every[position].ids[0];
                  if (position + 1 < row.tokens.size()) {
                    const auto next = static_cast<size_t>(Index(row.tokens[position + 1]));
                    nll -= logits[next] - logsumexp;
                  }
                });
    std::printf("  %-8s %4zu tokens: mean KL %.5f nats, NLL difference %+.5f nats a token\n",
                row.label.c_str(), row.tokens.size(), kl / row.tokens.size(),
                (nll - row.nll_sum) / row.tokens.size());
    agreement.kl_sum += kl;
    agreement.nll_difference_sum += nll - row.nll_sum;
    agreement.positions += row.tokens.size();
  }
  return agreement;
}

void ExpectAgreement(const char* file_name, double max_kl) {
  const std::optional<std::string> path = GoldenModelPath(file_name);
  if (!path.has_value()) return;
  const Agreement agreement = Compare(LoadGoldenModel(*path), LoadGoldenRows(file_name));
  const double positions = static_cast<double>(agreement.positions);
  std::printf("  all %.0f positions: mean KL %.5f, NLL difference %+.5f, top-1 %.4f\n", positions,
              agreement.kl_sum / positions, agreement.nll_difference_sum / positions,
              static_cast<double>(agreement.top1) / positions);
  EXPECT_LE(agreement.kl_sum / positions, max_kl);
  EXPECT_LE(std::abs(agreement.nll_difference_sum / positions), 0.03);
}

TEST(FastPathGolden, SmolLm2) { ExpectAgreement(kSmolLm2, 0.0070); }
TEST(FastPathGolden, Gemma3) { ExpectAgreement(kGemma3, 0.0075); }

}  // namespace
}  // namespace kvasir
