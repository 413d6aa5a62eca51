#include "bench_serve_report.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/counted.h"
#include "output.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double Known(const Distribution& distribution, double value) {
  return distribution.count == 0 ? kUnknown : value;
}

Json DistributionJson(const Distribution& d) {
  return {{"count", d.count}, {"mean", d.mean}, {"p50", d.p50},
          {"p95", d.p95},     {"p99", d.p99},   {"max", d.max}};
}

// Adds to `json`.
Json SummaryJson(const LoadSummary& summary, Json json = Json::object()) {
  json["requests"] = summary.requests;
  json["succeeded"] = summary.succeeded;
  json["failed"] = summary.requests - summary.succeeded;
  json["not_asked"] = summary.not_asked;
  json["errors"] = Json::object();
  for (const auto& [kind, error] : summary.errors) {
    json["errors"][kind] = {{"count", error.count}, {"example", error.example}};
  }
  json["wall_s"] = summary.wall_s;
  json["requests_s"] = summary.RequestsPerSecond();
  json["output_tok_s"] = summary.OutputTokensPerSecond();
  json["prompt_tok_s"] = nullptr;
  json["prompt_tokens"] = nullptr;
  json["cached_tokens"] = nullptr;
  json["cached_share"] = nullptr;
  if (summary.with_usage > 0) {
    json["prompt_tok_s"] = summary.PromptTokensPerSecond();
    json["prompt_tokens"] = summary.prompt_tokens;
  }
  if (summary.with_cached > 0) {
    json["cached_tokens"] = summary.cached_tokens;
    if (summary.with_usage > 0) json["cached_share"] = summary.CachedShare();
  }
  json["output_tokens"] = summary.output_tokens;
  json["with_usage"] = summary.with_usage;
  json["ttft_ms"] = DistributionJson(summary.first_token);
  json["gap_ms"] = DistributionJson(summary.gap);
  json["latency_ms"] = DistributionJson(summary.latency);
  return json;
}

// A request, for those who draw their own charts. Times in ms after the start of its round.
Json RecordJson(const LoadRecord& record, size_t round) {
  Json json;
  json["round"] = round + 1;
  json["start_ms"] = 1e3 * record.intended_s;
  json["first_token_ms"] = nullptr;
  if (!record.piece_s.empty()) json["first_token_ms"] = 1e3 * record.piece_s.front();
  json["end_ms"] = 1e3 * record.end_s;
  json["prompt_tokens"] = nullptr;
  if (record.has_usage) json["prompt_tokens"] = record.prompt_tokens;
  json["cached_tokens"] = nullptr;
  if (record.has_cached) json["cached_tokens"] = record.cached_tokens;
  json["output_tokens"] = record.output_tokens;
  json["error"] = nullptr;
  if (!record.ok()) json["error"] = record.error;
  return json;
}

Json LoadJson(const BenchServeReport& report) {
  const LoadPlan::Options& plan = report.plan;
  Json json;
  json["scenario"] = std::string(NameOf(plan.scenario));
  json["endpoint"] = report.chat ? "chat" : "completions";
  json["seed"] = plan.seed;
  json["requests"] = nullptr;
  if (plan.requests.has_value()) json["requests"] = *plan.requests;
  json["duration_s"] = report.pace.duration_s;
  json["loop"] = report.pace.open ? "open" : "closed";
  json["concurrency"] = report.pace.concurrency;
  json["rate"] = plan.rate;
  json["warmup"] = report.warmup;
  if (plan.scenario == LoadScenario::kReplay) {
    json["trace_speed"] = plan.trace_speed;
    json["trace_scale"] = plan.trace_scale;
  } else {
    json["prefix_tokens"] = plan.scenario == LoadScenario::kUnique ? 0 : plan.prefix_tokens;
    json["tail_tokens"] = plan.tail_tokens;
    json["turns"] = plan.scenario == LoadScenario::kChat ? plan.turns : 1;
    json["output_tokens"] = plan.output_tokens;
  }
  json["words_per_token"] = plan.words_per_token;
  json["words_per_token_measured"] = report.tokens_measured;
  json["ignore_eos"] = report.ignore_eos;
  return json;
}

}  // namespace

const std::vector<BenchMetric>& BenchMetrics() {
  using S = LoadSummary;
  constexpr const char* kThroughput = "throughput";
  constexpr const char* kFirst = "time to first token, ms";
  constexpr const char* kGap = "gap between tokens, ms";
  constexpr const char* kLatency = "whole request, ms";
  constexpr const char* kTokens = "tokens";
  static const std::vector<BenchMetric> metrics = {
      {"output_tok_s", kThroughput, "output tokens/s", 1, true,
       [](const S& s) { return s.OutputTokensPerSecond(); }},
      {"requests_s", kThroughput, "requests/s", 2, true,
       [](const S& s) { return s.RequestsPerSecond(); }},
      {"prompt_tok_s", kThroughput, "prompt tokens/s", 1, true,
       [](const S& s) { return s.with_usage > 0 ? s.PromptTokensPerSecond() : kUnknown; }},
      {"ttft_ms_p50", kFirst, "p50", 1, false,
       [](const S& s) { return Known(s.first_token, s.first_token.p50); }},
      {"ttft_ms_p95", kFirst, "p95", 1, false,
       [](const S& s) { return Known(s.first_token, s.first_token.p95); }},
      {"ttft_ms_p99", kFirst, "p99", 1, false,
       [](const S& s) { return Known(s.first_token, s.first_token.p99); }},
      {"ttft_ms_max", kFirst, "max", 1, false,
       [](const S& s) { return Known(s.first_token, s.first_token.max); }},
      {"gap_ms_p50", kGap, "p50", 1, false, [](const S& s) { return Known(s.gap, s.gap.p50); }},
      {"gap_ms_p95", kGap, "p95", 1, false, [](const S& s) { return Known(s.gap, s.gap.p95); }},
      {"gap_ms_p99", kGap, "p99", 1, false, [](const S& s) { return Known(s.gap, s.gap.p99); }},
      {"gap_ms_max", kGap, "max", 1, false, [](const S& s) { return Known(s.gap, s.gap.max); }},
      {"latency_ms_p50", kLatency, "p50", 1, false,
       [](const S& s) { return Known(s.latency, s.latency.p50); }},
      {"latency_ms_p95", kLatency, "p95", 1, false,
       [](const S& s) { return Known(s.latency, s.latency.p95); }},
      {"latency_ms_p99", kLatency, "p99", 1, false,
       [](const S& s) { return Known(s.latency, s.latency.p99); }},
      {"latency_ms_max", kLatency, "max", 1, false,
       [](const S& s) { return Known(s.latency, s.latency.max); }},
      {"prompt_tokens", kTokens, "in prompts", 0, true,
       [](const S& s) {
         return s.with_usage > 0 ? static_cast<double>(s.prompt_tokens) : kUnknown;
       }},
      {"cached_percent", kTokens, "of those reused, %", 1, true,
       [](const S& s) {
         return s.with_cached > 0 && s.prompt_tokens > 0 ? 100.0 * s.CachedShare() : kUnknown;
       }},
      {"output_tokens", kTokens, "in answers", 0, true,
       [](const S& s) { return static_cast<double>(s.output_tokens); }},
  };
  return metrics;
}

std::string FormatMetric(const BenchMetric& metric, const LoadSummary& summary) {
  const double value = metric.value(summary);
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, metric.decimals);
}

double MetricRatio(const BenchMetric& metric, const BenchServeReport& report) {
  if (report.servers.size() < 2) return kUnknown;
  const double below = metric.value(report.servers[1].summary);
  return below > 0.0 ? metric.value(report.servers[0].summary) / below : kUnknown;
}

std::string DescribeLoad(const BenchServeReport& report) {
  const LoadPlan::Options& plan = report.plan;
  std::string text(NameOf(plan.scenario));
  text += plan.requests.has_value() ? ": " + Counted(*plan.requests, "request") : ": requests";
  if (report.pace.duration_s > 0.0) text += fmt::format(" for {:g} s", report.pace.duration_s);
  if (!report.pace.open) {
    text += fmt::format(", {} at once", report.pace.concurrency);
  } else if (plan.rate > 0.0) {
    text += fmt::format(", {:g} a second", plan.rate);
  } else {
    text += fmt::format(", at the trace's times / {:g}", plan.trace_speed);
  }
  if (plan.scenario == LoadScenario::kReplay) {
    text += fmt::format(", the trace's lengths x {:g}", plan.trace_scale);
  } else {
    text += ", each ";
    if (plan.scenario != LoadScenario::kUnique && plan.prefix_tokens > 0) {
      text += fmt::format("{} common + ", plan.prefix_tokens);
    }
    text += fmt::format("{}, {} out", Counted(plan.tail_tokens, "own token"), plan.output_tokens);
    if (plan.scenario == LoadScenario::kChat) text += ", " + Counted(plan.turns, "turn");
  }
  const size_t rounds = report.servers.empty() ? 0 : report.servers[0].rounds.size();
  if (rounds > 1) text += fmt::format(", {} rounds", rounds);
  return text;
}

void PrintTable(const BenchServeReport& report) {
  PrintOut("{}{}\n", DescribeLoad(report), report.interrupted ? " (interrupted)" : "");
  for (const BenchedServer& server : report.servers) {
    PrintOut("{}  {}  {}\n", server.label, server.url, server.model);
  }
  const bool two = report.servers.size() > 1;
  PrintOut("\n{:<26}", "");
  for (const BenchedServer& server : report.servers) PrintOut("{:>14}", server.label);
  PrintOut("{}\n", two ? "         A / B" : "");
  std::string group;
  for (const BenchMetric& metric : BenchMetrics()) {
    if (group != metric.group) {
      group = metric.group;
      PrintOut("{}\n", group);
    }
    PrintOut("  {:<24}", metric.label);
    for (const BenchedServer& server : report.servers) {
      PrintOut("{:>14}", FormatMetric(metric, server.summary));
    }
    const double ratio = MetricRatio(metric, report);
    if (two) PrintOut("{:>14}", std::isnan(ratio) ? "-" : fmt::format("{:.3g} x", ratio));
    PrintOut("\n");
  }
  PrintOut("requests\n  {:<24}", "answered");
  for (const BenchedServer& server : report.servers) PrintOut("{:>14}", server.summary.succeeded);
  PrintOut("\n  {:<24}", "failed");
  for (const BenchedServer& server : report.servers) {
    PrintOut("{:>14}", server.summary.requests - server.summary.succeeded);
  }
  PrintOut("\n");
  for (const BenchedServer& server : report.servers) {
    for (const auto& [kind, error] : server.summary.errors) {
      PrintOut("  {}: {} x {}: {}\n", server.label, error.count, kind, error.example);
    }
    if (server.summary.not_asked > 0) {
      PrintOut("  {}: {} later turns of failed conversations were not asked\n", server.label,
               server.summary.not_asked);
    }
  }
}

std::string ToJson(const BenchServeReport& report) {
  Json json;
  json["started"] = report.started;
  json["kvasir_version"] = KVASIR_VERSION;
  json["interrupted"] = report.interrupted;
  json["load"] = LoadJson(report);
  json["servers"] = Json::array();
  for (const BenchedServer& server : report.servers) {
    Json entry;
    entry["label"] = server.label;
    entry["url"] = server.url;
    entry["model"] = server.model;
    entry = SummaryJson(server.summary, std::move(entry));
    entry["rounds"] = Json::array();
    entry["samples"] = Json::array();
    for (size_t round = 0; round < server.rounds.size(); ++round) {
      entry["rounds"].push_back(SummaryJson(Summarise({server.rounds[round]})));
      for (const LoadRecord& record : server.rounds[round].records) {
        entry["samples"].push_back(RecordJson(record, round));
      }
    }
    json["servers"].push_back(std::move(entry));
  }
  json["ratios"] = nullptr;
  if (report.servers.size() > 1) {
    Json ratios = Json::object();
    for (const BenchMetric& metric : BenchMetrics()) {
      const double ratio = MetricRatio(metric, report);
      ratios[metric.key] = std::isnan(ratio) ? Json(nullptr) : Json(ratio);
    }
    json["ratios"] = std::move(ratios);
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvasir
