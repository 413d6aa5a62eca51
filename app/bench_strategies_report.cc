#include "bench_strategies_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/counted.h"
#include "output.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1024.0 * 1024.0;
constexpr size_t kMostSamples = 500;  // Of a row, in JSON.

template <typename Value>
StepSeries Over(const std::vector<StrategySample>& samples, Value value) {
  StepSeries series;
  for (const StrategySample& sample : samples) {
    const double now = static_cast<double>(value(sample));
    series.mean += now;
    series.peak = std::max(series.peak, now);
  }
  if (!samples.empty()) series.mean /= static_cast<double>(samples.size());
  return series;
}

// What must repeat.
std::vector<uint64_t> CountsOf(const StrategyOutcome& outcome) {
  std::vector<uint64_t> counts = {outcome.samples.size(),
                                  outcome.scheduler.computed_tokens,
                                  outcome.scheduler.preemptions,
                                  outcome.scheduler.cached_tokens,
                                  outcome.scheduler.dedupe_waits,
                                  outcome.kv.copies,
                                  outcome.kv.moves,
                                  outcome.kv.hit_tokens};
  for (const StrategySample& sample : outcome.samples) {
    counts.insert(counts.end(), {sample.running, sample.usage.reserved, sample.usage.used,
                                 sample.usage.idle, sample.usage.largest_free});
  }
  return counts;
}

std::string Answer(const StrategyRow& row, uint32_t request) {
  std::string text = row.outcome.answers[request];
  constexpr size_t kMost = 40;
  if (text.size() > kMost) text.resize(kMost);
  return text;
}

std::string RowName(const StrategyRow& row) {
  return fmt::format("{} {}", KvStrategyName(row.strategy), KvTypesName(row.types));
}

// Rows of the same type whose answers can be compared: calls `compare(a, b)` until it is false.
template <typename Compare>
void ForEachPair(const StrategiesReport& report, Compare compare) {
  if (report.interrupted) return;
  for (size_t b = 1; b < report.rows.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      const StrategyRow& one = report.rows[a];
      const StrategyRow& other = report.rows[b];
      if (!one.ok() || !other.ok() || !(one.types == other.types)) continue;
      if (!compare(a, b)) return;
      break;  // The first one of its type stands for all that equal it.
    }
  }
}

Json DistributionJson(const Distribution& d) {
  return {{"count", d.count}, {"mean", d.mean}, {"p50", d.p50},
          {"p95", d.p95},     {"p99", d.p99},   {"max", d.max}};
}

Json LoadJson(const StrategiesReport& report) {
  const ScriptedLoad::Options& load = report.load.options;
  return {{"scenario", std::string(NameOf(load.scenario))},
          {"seed", load.seed},
          {"requests", load.requests},
          {"clients", load.clients},
          {"prefix_tokens", load.prefix_tokens},
          {"tail_tokens", load.tail_tokens},
          {"output_tokens_mean", load.output_tokens},
          {"turns", load.turns},
          {"prompt_tokens", report.load.prompt_tokens},
          {"output_tokens", report.load.output_tokens},
          {"longest_tokens", report.load.longest_tokens}};
}

Json TimelineJson(const std::vector<StrategySample>& samples) {
  Json json;
  for (const char* key : {"step", "t_s", "running", "waiting", "reserved_bytes", "used_bytes",
                          "idle_bytes", "largest_free_bytes"}) {
    json[key] = Json::array();
  }
  const size_t stride = std::max<size_t>(1, (samples.size() + kMostSamples - 1) / kMostSamples);
  for (size_t i = 0; i < samples.size(); i += stride) {
    const StrategySample& sample = samples[i];
    json["step"].push_back(i + 1);
    json["t_s"].push_back(sample.end_s);
    json["running"].push_back(sample.running);
    json["waiting"].push_back(sample.waiting);
    json["reserved_bytes"].push_back(sample.usage.reserved);
    json["used_bytes"].push_back(sample.usage.used);
    json["idle_bytes"].push_back(sample.usage.idle);
    json["largest_free_bytes"].push_back(sample.usage.largest_free);
  }
  return json;
}

Json RequestsJson(const StrategyOutcome& outcome) {
  Json json = Json::array();
  for (const LoadRecord& record : outcome.load.records) {
    Json entry;
    entry["start_ms"] = 1e3 * record.intended_s;
    entry["first_token_ms"] = nullptr;
    if (!record.piece_s.empty()) entry["first_token_ms"] = 1e3 * record.piece_s.front();
    entry["end_ms"] = 1e3 * record.end_s;
    entry["prompt_tokens"] = record.prompt_tokens;
    entry["cached_tokens"] = record.cached_tokens;
    entry["output_tokens"] = record.output_tokens;
    json.push_back(std::move(entry));
  }
  return json;
}

Json RowJson(const StrategyRow& row) {
  Json json;
  json["strategy"] = std::string(KvStrategyName(row.strategy));
  json["kv_type"] = KvTypesName(row.types);
  json["problem"] = nullptr;
  if (!row.ok()) {
    json["problem"] = row.problem;
    return json;
  }
  Json counts = Json::object(), times = Json::object();
  for (const StrategyMetric& metric : StrategyMetrics()) {
    (metric.repeats ? counts : times)[metric.key] = metric.value(row);
  }
  json["kv_bytes_per_token"] = row.outcome.bytes_per_token;
  json["counts"] = std::move(counts);
  json["times"] = std::move(times);
  json["ttft_ms"] = DistributionJson(row.load.first_token);
  json["gap_ms"] = DistributionJson(row.load.gap);
  json["latency_ms"] = DistributionJson(row.load.latency);
  json["requests"] = RequestsJson(row.outcome);
  json["timeline"] = TimelineJson(row.outcome.samples);
  return json;
}

}  // namespace

void Summarise(StrategyRow* row) {
  if (!row->ok()) return;
  const size_t middle = (row->rounds.size() - 1) / 2;
  for (const StrategyOutcome& round : row->rounds) {
    if (round.interrupted || CountsOf(round) == CountsOf(row->rounds[0])) continue;
    row->problem = "two rounds of the same load did not count the same: this is a bug";
    return;
  }
  std::nth_element(row->rounds.begin(), row->rounds.begin() + static_cast<ptrdiff_t>(middle),
                   row->rounds.end(), [](const StrategyOutcome& a, const StrategyOutcome& b) {
                     return a.load.wall_s < b.load.wall_s;
                   });
  row->outcome = std::move(row->rounds[middle]);
  row->rounds.clear();
  const std::vector<StrategySample>& samples = row->outcome.samples;
  row->load = Summarise({row->outcome.load});
  using S = StrategySample;
  row->running = Over(samples, [](const S& s) { return s.running; });
  row->waiting = Over(samples, [](const S& s) { return s.waiting; });
  row->reserved = Over(samples, [](const S& s) { return s.usage.reserved; });
  row->used = Over(samples, [](const S& s) { return s.usage.used; });
  row->wasted = Over(samples, [](const S& s) { return s.usage.wasted(); });
  row->idle = Over(samples, [](const S& s) { return s.usage.idle; });
  row->fragmentation = Over(samples, [](const S& s) { return s.fragmentation(); });
  if (row->reserved.mean > 0.0) row->wasted_share = row->wasted.mean / row->reserved.mean;
  const double bytes = static_cast<double>(std::max<uint64_t>(row->outcome.bytes_per_token, 1));
  row->peak_tokens = static_cast<uint64_t>(row->used.peak / bytes);
}

bool ComparesAnswers(const StrategiesReport& report) {
  bool any = false;
  ForEachPair(report, [&](size_t, size_t) {
    any = true;
    return false;
  });
  return any;
}

std::optional<AnswerDifference> FindDifference(const StrategiesReport& report) {
  std::optional<AnswerDifference> difference;
  ForEachPair(report, [&](size_t a, size_t b) {
    const std::vector<std::string>& one = report.rows[a].outcome.answers;
    const std::vector<std::string>& other = report.rows[b].outcome.answers;
    for (uint32_t i = 0; i < report.load.request_count; ++i) {
      if (one[i] == other[i]) continue;
      difference = AnswerDifference{a, b, i};
      return false;
    }
    return true;
  });
  return difference;
}

const std::vector<StrategyMetric>& StrategyMetrics() {
  using R = StrategyRow;
  constexpr const char* kRate = "throughput";
  constexpr const char* kTimes = "times, ms";
  constexpr const char* kCompany = "requests at once";
  constexpr const char* kMemory = "KV memory, MiB";
  constexpr const char* kShares = "KV memory, %";
  constexpr const char* kTokens = "tokens";
  constexpr const char* kEvents = "events";
  static const std::vector<StrategyMetric> metrics = {
      {"requests_s", kRate, "requests/s", 2, false,
       [](const R& r) { return r.load.RequestsPerSecond(); }},
      {"output_tok_s", kRate, "output tokens/s", 1, false,
       [](const R& r) { return r.load.OutputTokensPerSecond(); }},
      {"ttft_ms_p50", kTimes, "first token p50", 0, false,
       [](const R& r) { return r.load.first_token.p50; }},
      {"ttft_ms_p95", kTimes, "first token p95", 0, false,
       [](const R& r) { return r.load.first_token.p95; }},
      {"gap_ms_p99", kTimes, "between tokens p99", 1, false,
       [](const R& r) { return r.load.gap.p99; }},
      {"lock_wait_ms", kTimes, "waited for locks", 3, false,
       [](const R& r) {
         return std::chrono::duration<double, std::milli>(r.outcome.lock_waits.time).count();
       }},
      {"most_at_once", kCompany, "most", 0, true, [](const R& r) { return r.running.peak; }},
      {"mean_at_once", kCompany, "mean", 2, true, [](const R& r) { return r.running.mean; }},
      {"mean_waiting", kCompany, "waiting, mean", 2, true,
       [](const R& r) { return r.waiting.mean; }},
      {"reserved_mib_mean", kMemory, "reserved, mean", 2, true,
       [](const R& r) { return r.reserved.mean / kMiB; }},
      {"reserved_mib_peak", kMemory, "reserved, peak", 2, true,
       [](const R& r) { return r.reserved.peak / kMiB; }},
      {"used_mib_mean", kMemory, "used, mean", 2, true,
       [](const R& r) { return r.used.mean / kMiB; }},
      {"used_mib_peak", kMemory, "used, peak", 2, true,
       [](const R& r) { return r.used.peak / kMiB; }},
      {"wasted_mib_mean", kMemory, "wasted, mean", 2, true,
       [](const R& r) { return r.wasted.mean / kMiB; }},
      {"wasted_mib_peak", kMemory, "wasted, peak", 2, true,
       [](const R& r) { return r.wasted.peak / kMiB; }},
      {"idle_mib_mean", kMemory, "kept for later, mean", 2, true,
       [](const R& r) { return r.idle.mean / kMiB; }},
      {"wasted_percent", kShares, "wasted, of reserved", 2, true,
       [](const R& r) { return 100.0 * r.wasted_share; }},
      {"fragmentation_percent_mean", kShares, "fragmentation, mean", 2, true,
       [](const R& r) { return 100.0 * r.fragmentation.mean; }},
      {"fragmentation_percent_peak", kShares, "fragmentation, peak", 2, true,
       [](const R& r) { return 100.0 * r.fragmentation.peak; }},
      {"reused_tokens", kTokens, "reused of prompts", 0, true,
       [](const R& r) { return static_cast<double>(r.outcome.scheduler.cached_tokens); }},
      {"computed_tokens", kTokens, "computed", 0, true,
       [](const R& r) { return static_cast<double>(r.outcome.scheduler.computed_tokens); }},
      {"peak_tokens", kTokens, "held at once, most", 0, true,
       [](const R& r) { return static_cast<double>(r.peak_tokens); }},
      {"steps", kEvents, "steps", 0, true,
       [](const R& r) { return static_cast<double>(r.outcome.scheduler.steps); }},
      {"preemptions", kEvents, "preemptions", 0, true,
       [](const R& r) { return static_cast<double>(r.outcome.scheduler.preemptions); }},
      {"dedupe_waits", kEvents, "waits for another's KV", 0, true,
       [](const R& r) { return static_cast<double>(r.outcome.scheduler.dedupe_waits); }},
      {"copies", kEvents, "copies on write, blocks", 0, true,
       [](const R& r) { return static_cast<double>(r.outcome.kv.copies); }},
      {"moves", kEvents, "other copies, blocks", 0, true,
       [](const R& r) { return static_cast<double>(r.outcome.kv.moves); }},
      {"evictions", kEvents, "evictions, blocks", 0, true,
       [](const R& r) {
         uint64_t sum = 0;
         for (const uint64_t blocks : r.outcome.kv.evictions) sum += blocks;
         return static_cast<double>(sum);
       }},
      {"lock_waits", kEvents, "waits for locks", 0, false,
       [](const R& r) { return static_cast<double>(r.outcome.lock_waits.count); }},
  };
  return metrics;
}

std::string FormatMetric(const StrategyMetric& metric, const StrategyRow& row) {
  return row.ok() ? fmt::format("{:.{}f}", metric.value(row), metric.decimals) : "-";
}

std::string DescribeLoad(const StrategiesReport& report) {
  const ScriptedLoad::Options& load = report.load.options;
  std::string text =
      fmt::format("{}: {} of {}, each ", NameOf(load.scenario), Counted(load.requests, "request"),
                  Counted(load.clients, "client"));
  if (load.scenario != StrategyScenario::kUnique && load.prefix_tokens > 0) {
    text += fmt::format("{} common + ", load.prefix_tokens);
  }
  text += fmt::format("about {}", Counted(load.tail_tokens, "own token"));
  if (load.scenario == StrategyScenario::kMixed) {
    text += fmt::format(" (one in four: {}; common ones in every other)",
                        load.tail_tokens * ScriptedLoad::kLongTimes);
  }
  text += fmt::format(", about {} out", load.output_tokens);
  if (load.scenario == StrategyScenario::kChat) text += ", " + Counted(load.turns, "turn");
  return text + fmt::format("; seed {}", load.seed);
}

std::string DescribeMemory(const StrategiesReport& report) {
  return fmt::format(
      "{:g} MiB of KV, context {} tokens, blocks of {}, at most {} beside answers, "
      "evicts {}{}",
      static_cast<double>(report.budget_bytes) / kMiB, report.context_tokens, report.block_tokens,
      Counted(report.prefill_rows, "prompt row"), KvEvictName(report.evict),
      report.rounds == 1 ? std::string()
                         : fmt::format("; the median of {} rounds in turn", report.rounds));
}

std::string DescribeAnswers(const StrategiesReport& report) {
  if (!ComparesAnswers(report)) return "answers equal: not compared";
  const std::optional<AnswerDifference> difference = FindDifference(report);
  if (!difference.has_value()) return "answers equal: yes";
  const StrategyRow& a = report.rows[difference->row_a];
  const StrategyRow& b = report.rows[difference->row_b];
  return fmt::format("answers equal: no: request {}: {} says '{}', {} says '{}'",
                     difference->request + 1, RowName(a), Answer(a, difference->request),
                     RowName(b), Answer(b, difference->request));
}

std::vector<std::string> DescribeCompany(const StrategiesReport& report) {
  std::vector<std::string> lines;
  for (const StrategyRow& one : report.rows) {
    if (!one.ok() || one.strategy != KvStrategy::kStatic || one.running.peak == 0.0) continue;
    for (const StrategyRow& other : report.rows) {
      if (!other.ok() || other.strategy != KvStrategy::kPaged || !(other.types == one.types)) {
        continue;
      }
      const bool all = other.running.peak >= report.load.options.clients;
      lines.push_back(fmt::format(
          "{}: paged holds {} at once, static {:.0f}: {}{:.2f} x", KvTypesName(one.types),
          Counted(static_cast<uint64_t>(other.running.peak), "request"), one.running.peak,
          all ? "all there are, at least " : "", other.running.peak / one.running.peak));
    }
  }
  return lines;
}

void PrintTable(const StrategiesReport& report) {
  constexpr int kLabel = 26;
  PrintOut("{}{}\n{}\n{}\n\n", DescribeLoad(report), report.interrupted ? " (interrupted)" : "",
           DescribeMemory(report), report.machine);
  size_t width = 9;
  for (const StrategyRow& row : report.rows) {
    width = std::max(width, KvTypesName(row.types).size() + 1);
  }
  PrintOut("{:<{}}", "", kLabel);
  for (const StrategyRow& row : report.rows)
    PrintOut("{:>{}}", KvStrategyName(row.strategy), width);
  PrintOut("\n{:<{}}", "", kLabel);
  for (const StrategyRow& row : report.rows) PrintOut("{:>{}}", KvTypesName(row.types), width);
  PrintOut("\n");
  std::string group;
  for (const StrategyMetric& metric : StrategyMetrics()) {
    if (group != metric.group) {
      group = metric.group;
      PrintOut("{}\n", group);
    }
    PrintOut("  {:<{}}", metric.label, kLabel - 2);
    for (const StrategyRow& row : report.rows) {
      PrintOut("{:>{}}", FormatMetric(metric, row), width);
    }
    PrintOut("\n");
  }
  PrintOut(
      "\nmeans and peaks: of the ends of all steps; times are this machine's, the rest "
      "repeats exactly\n");
  for (const StrategyRow& row : report.rows) {
    if (!row.ok()) PrintOut("{}: {}\n", RowName(row), row.problem);
  }
  for (const std::string& line : DescribeCompany(report)) PrintOut("{}\n", line);
  PrintOut("{}\n", DescribeAnswers(report));
}

std::string ToJson(const StrategiesReport& report) {
  Json json;
  json["started"] = report.started;
  json["kvasir_version"] = KVASIR_VERSION;
  json["interrupted"] = report.interrupted;
  json["model"] = report.model;
  json["machine"] = report.machine;
  json["load"] = LoadJson(report);
  json["budget_bytes"] = report.budget_bytes;
  json["ctx"] = report.context_tokens;
  json["block_tokens"] = report.block_tokens;
  json["prefill_rows"] = report.prefill_rows;
  json["rounds"] = report.rounds;
  json["kv_evict"] = std::string(KvEvictName(report.evict));
  json["answers_equal"] = nullptr;
  if (ComparesAnswers(report)) json["answers_equal"] = !FindDifference(report).has_value();
  json["rows"] = Json::array();
  for (const StrategyRow& row : report.rows) json["rows"].push_back(RowJson(row));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvasir
