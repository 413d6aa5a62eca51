// BenchServeReport: the outcome of `kvasir bench serve` as a table, as JSON and as a page.
#ifndef KVASIR_APP_BENCH_SERVE_REPORT_H_
#define KVASIR_APP_BENCH_SERVE_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "load_plan.h"
#include "load_run.h"
#include "load_summary.h"

namespace kvasir {

struct BenchedServer {
  std::string label;  // "A", "B".
  std::string url;
  std::string model;
  std::vector<LoadResult> rounds;
  LoadSummary summary;  // Of all rounds.
};

struct BenchServeReport {
  std::string started;  // 2026-01-02T03:04:05Z
  LoadPlan::Options plan;
  LoadPace pace;
  bool chat = true;
  bool ignore_eos = false;
  bool tokens_measured = false;  // words_per_token came from the server's tokenizer.
  uint32_t warmup = 0;
  bool interrupted = false;
  std::vector<BenchedServer> servers;  // One or two.
};

// A number of the summary, as table, JSON's ratios and page name it.
struct BenchMetric {
  const char* key;    // "ttft_ms_p95"
  const char* group;  // "time to first token, ms"
  const char* label;  // "p95"
  int decimals;
  bool more_is_better;
  double (*value)(const LoadSummary& summary);  // NaN: unknown.
};

const std::vector<BenchMetric>& BenchMetrics();

// "1,234.5" style is not used: plain digits; "-" for NaN.
std::string FormatMetric(const BenchMetric& metric, const LoadSummary& summary);

// The first server's value over the second's; NaN when there is none.
double MetricRatio(const BenchMetric& metric, const BenchServeReport& report);

// One line: scenario, requests, pace, lengths.
std::string DescribeLoad(const BenchServeReport& report);

void PrintTable(const BenchServeReport& report);
std::string ToJson(const BenchServeReport& report);
std::string ToHtml(const BenchServeReport& report);  // bench_serve_html.cc

}  // namespace kvasir

#endif  // KVASIR_APP_BENCH_SERVE_REPORT_H_
