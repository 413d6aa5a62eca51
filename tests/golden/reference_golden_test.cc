// The reference forward pass against the float64 oracle: every listed logit, both models.
//
// The oracle multiplies float64 activations with float32 dequantized weights; the reference does
// the same except that it holds K and V as float32. Anything beyond rounding means that one of the
// two computes another model.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "io/mapped_file.h"
#include "model/gguf_file.h"
#include "model/model_config.h"
#include "model/reference_forward.h"
#include "tests/golden/golden_model.h"

namespace kvasir {
namespace {

constexpr double kTolerance = 5e-4;
// `every` is printed with four decimals.
constexpr double kEveryTolerance = kTolerance + 5e-5;

double LogSumExpOf(const std::vector<double>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

struct Deviation {
  size_t logits = 0;
  double logit = 0.0;      // Largest |reference - oracle| of a listed logit.
  double logsumexp = 0.0;  // Likewise.

  void Add(const GoldenPosition& golden, const std::vector<double>& found) {
    for (size_t i = 0; i < golden.ids.size(); ++i) {
      logit = std::max(logit, std::abs(found[golden.ids[i]] - golden.logits[i]));
    }
    logits += golden.ids.size();
    logsumexp = std::max(logsumexp, std::abs(LogSumExpOf(found) - golden.logsumexp));
  }
};

std::vector<std::vector<double>> LogitsAt(const ReferenceModel& model, const GoldenRow& row,
                                          const std::vector<GoldenPosition>& golden) {
  std::vector<uint32_t> positions;
  for (const GoldenPosition& position : golden) positions.push_back(position.position);
  auto logits = model.Logits(row.tokens, positions);
  EXPECT_TRUE(logits.ok()) << MessageOf(logits.status());
  return logits.ok() ? *std::move(logits) : std::vector<std::vector<double>>();
}

Deviation Compare(const ReferenceModel& model, const GoldenRow& row,
                  const std::vector<GoldenPosition>& golden) {
  const std::vector<std::vector<double>> logits = LogitsAt(model, row, golden);
  Deviation deviation;
  for (size_t i = 0; i < logits.size(); ++i) deviation.Add(golden[i], logits[i]);
  return deviation;
}

void ExpectAgreement(const char* file_name) {
  const std::optional<std::string> path = GoldenModelPath(file_name);
  if (!path.has_value()) return;
  const auto file = MappedFile::Open(*path);
  ASSERT_TRUE(file.ok()) << MessageOf(file.status());
  const auto gguf = GgufFile::Parse(file->bytes());
  ASSERT_TRUE(gguf.ok()) << MessageOf(gguf.status());
  const auto config = ReadModelConfig(*gguf);
  ASSERT_TRUE(config.ok()) << MessageOf(config.status());
  const ReferenceModel model(*gguf, *config, WorkerTeam::UsableCores());

  const std::vector<GoldenRow> rows = LoadGoldenRows(file_name);
  ASSERT_FALSE(rows.empty());
  for (const GoldenRow& row : rows) {
    SCOPED_TRACE(row.label);
    ASSERT_FALSE(row.positions.empty());
    const auto start = std::chrono::steady_clock::now();
    const Deviation deviation = Compare(model, row, row.positions);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_GE(deviation.logits, row.positions.size() * 32);
    EXPECT_LE(deviation.logit, kTolerance);
    EXPECT_LE(deviation.logsumexp, kTolerance);
    std::printf("%s: %zu tokens, %zu logits: max |error| %.2e, of logsumexp %.2e (%.1f s)\n",
                row.label.c_str(), row.tokens.size(), deviation.logits, deviation.logit,
                deviation.logsumexp, took.count());
  }
  // All positions of one short row: a mistake at odd positions only would escape the listed ones.
  const GoldenRow& code = rows.at(1);
  const Deviation every = Compare(model, code, code.every);
  EXPECT_EQ(every.logits, code.tokens.size() * 32);
  EXPECT_LE(every.logit, kEveryTolerance);
}

TEST(ReferenceGolden, SmolLm2AgreesWithTheOracle) { ExpectAgreement(kSmolLm2); }

TEST(ReferenceGolden, Gemma3AgreesWithTheOracle) { ExpectAgreement(kGemma3); }

}  // namespace
}  // namespace kvasir
