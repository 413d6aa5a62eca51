// StrategiesReport: the outcome of `kvasir bench strategies` as a table, as JSON and as a page.
#ifndef KVASIR_APP_BENCH_STRATEGIES_REPORT_H_
#define KVASIR_APP_BENCH_STRATEGIES_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench_strategies_load.h"
#include "bench_strategies_run.h"
#include "load_summary.h"

namespace kvasir {

// Of one number, over the ends of all steps.
struct StepSeries {
  double mean = 0.0;
  double peak = 0.0;
};

struct StrategyRow {
  KvStrategy strategy = KvStrategy::kPaged;
  KvTypes types;
  std::string problem;                  // Why it could not be run; empty: it was.
  std::vector<StrategyOutcome> rounds;  // All, until Summarise.
  StrategyOutcome outcome;              // The round of median length.

  // Of the outcome, by Summarise.
  LoadSummary load;
  StepSeries running, waiting, reserved, used, wasted, idle, fragmentation;
  double wasted_share = 0.0;  // Of the reserved bytes, over all steps.
  uint64_t peak_tokens = 0;   // With KV at once.

  bool ok() const { return problem.empty(); }
};

struct StrategiesReport {
  std::string started;  // 2026-01-02T03:04:05Z
  std::string model;
  std::string machine;  // CPU, instruction set, threads.
  ScriptedLoad load;
  uint64_t budget_bytes = 0;
  uint32_t context_tokens = 0;
  uint32_t block_tokens = 0;
  uint32_t prefill_rows = 0;
  uint32_t rounds = 1;  // Of all rows in turn.
  KvEvict evict = KvEvict::kLru;
  bool interrupted = false;
  std::vector<StrategyRow> rows;  // Types, and for each the strategies, in the order asked for.
};

// Chooses the outcome and fills in what follows from it. A row whose rounds differ in more than
// times becomes a problem: that is a bug. REQUIRES: a problem, or a round at least.
void Summarise(StrategyRow* row);

// The first request that two strategies with the same KV type answered differently.
struct AnswerDifference {
  size_t row_a = 0;
  size_t row_b = 0;
  uint32_t request = 0;
};
// nullopt when all answers are equal; also when there is nothing to compare.
std::optional<AnswerDifference> FindDifference(const StrategiesReport& report);
// Whether any two rows could be compared.
bool ComparesAnswers(const StrategiesReport& report);

// A number of a row, as table, JSON and page name it.
struct StrategyMetric {
  const char* key;    // "ttft_ms_p95"
  const char* group;  // "time to first token, ms"
  const char* label;  // "p95"
  int decimals;
  bool repeats;  // Exactly, from run to run; else it is a time of this machine.
  double (*value)(const StrategyRow& row);
};
const std::vector<StrategyMetric>& StrategyMetrics();
std::string FormatMetric(const StrategyMetric& metric, const StrategyRow& row);

// One line: scenario, requests, clients, lengths.
std::string DescribeLoad(const StrategiesReport& report);
// One line: memory, context, blocks.
std::string DescribeMemory(const StrategiesReport& report);
// "answers equal: yes", "... no: ..." or "... not compared".
std::string DescribeAnswers(const StrategiesReport& report);
// Most requests at once of paged over static, a line for each type that has both.
std::vector<std::string> DescribeCompany(const StrategiesReport& report);

void PrintTable(const StrategiesReport& report);
std::string ToJson(const StrategiesReport& report);
std::string ToHtml(const StrategiesReport& report);  // bench_strategies_html.cc

}  // namespace kvasir

#endif  // KVASIR_APP_BENCH_STRATEGIES_REPORT_H_
