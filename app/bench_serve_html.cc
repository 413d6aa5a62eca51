// The page of `kvasir bench serve --html`: one file, readable without script or network.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bench_serve_report.h"
#include "svg_chart.h"

namespace kvasir {
namespace {

constexpr size_t kMostBars = 400;  // A timeline with more is no longer readable.

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>kvasir bench serve</title>
<style>
:root { color-scheme: light dark; --bg: #fff; --ink: #1c2430; --dim: #66707e; --line: #e3e7ec;
  --card: #f7f8fa; --c0: #2563c9; --c1: #d9730d; --bad: #c02c3a; }
@media (prefers-color-scheme: dark) { :root { --bg: #14181d; --ink: #e4e8ee; --dim: #939daa;
  --line: #2b323b; --card: #1b2027; --c0: #6ea8ff; --c1: #ffab5e; --bad: #ff6b78; } }
body { margin: 0 auto; padding: 24px 20px 48px; max-width: 1400px; background: var(--bg);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 15px; margin: 0 0 8px; }
p { margin: 4px 0; } .dim { color: var(--dim); }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px; }
.tiles, .grid2 { display: grid; gap: 16px; margin-top: 16px; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); }
.grid2 { grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
.tall { grid-row: span 3; }
.grid2 { align-items: start; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px 16px; overflow-x: auto; }
.big { font-size: 24px; font-weight: 600; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 8px; text-align: right; } th:first-child, td:first-child { text-align: left; }
tr.group td { padding-top: 10px; font-weight: 600; }
tr:not(.group) td { border-bottom: 1px solid var(--line); }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); } .axis { stroke: var(--dim); fill: none; }
.label { fill: var(--dim); font-size: 11px; } .line { fill: none; stroke-width: 2; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); }
.f0 { fill: var(--c0); background: var(--c0); } .f1 { fill: var(--c1); background: var(--c1); }
.wait { opacity: 0.3; } .bad { fill: var(--bad); color: var(--bad); }
</style></head><body>
)";

// The share of values up to each value, in percent.
double LongestRound(const BenchServeReport& report) {
  double longest_s = 0.0;
  for (const BenchedServer& server : report.servers) {
    for (const LoadResult& round : server.rounds) longest_s = std::max(longest_s, round.wall_s);
  }
  return longest_s;
}

// Pieces of text a second, all rounds laid over each other and averaged.
ChartSeries TokenRate(const BenchedServer& server, double end_s) {
  std::vector<double> times_s;
  double wall_s = 0.0;
  for (const LoadResult& round : server.rounds) {
    wall_s = std::max(wall_s, round.wall_s);
    for (const LoadRecord& record : round.records) {
      times_s.insert(times_s.end(), record.piece_s.begin(), record.piece_s.end());
    }
  }
  // With few tokens to a bin the curve would show the bins, not the server.
  const size_t bins = std::clamp<size_t>(times_s.size() / 20, 10, 60);
  const double width_s = end_s / static_cast<double>(bins);
  std::vector<double> counts(bins, 0.0);
  for (const double time_s : times_s) {
    const size_t bin = static_cast<size_t>(std::max(time_s, 0.0) / width_s);
    counts[std::min(bin, bins - 1)] += 1.0;
  }
  ChartSeries series;
  series.name = server.label;
  const double scale = width_s * static_cast<double>(std::max<size_t>(server.rounds.size(), 1));
  for (size_t bin = 0; bin < bins; ++bin) {
    const double middle_s = (static_cast<double>(bin) + 0.5) * width_s;
    if (middle_s - width_s > wall_s) break;
    series.points.emplace_back(middle_s, counts[bin] / scale);
  }
  return series;
}

std::string Timeline(const BenchServeReport& report, int index, double end_s) {
  const BenchedServer& server = report.servers[static_cast<size_t>(index)];
  if (server.rounds.empty()) return {};
  std::vector<const LoadRecord*> records;
  for (const LoadRecord& record : server.rounds[0].records) records.push_back(&record);
  std::stable_sort(records.begin(), records.end(), [](const LoadRecord* a, const LoadRecord* b) {
    return a->intended_s < b->intended_s;
  });
  if (records.size() > kMostBars) records.resize(kMostBars);
  std::vector<TimeBar> bars;
  for (const LoadRecord* record : records) {
    TimeBar bar;
    bar.begin_s = record->intended_s;
    bar.end_s = record->end_s;
    bar.first_s = record->piece_s.empty() ? record->end_s : record->piece_s.front();
    bar.failed = !record->ok();
    bar.title = bar.failed
                    ? record->error + ": " + record->message
                    : fmt::format(
                          "first token after {:.0f} ms, done after {:.0f} ms; {} of "
                          "{} prompt tokens reused, {} tokens out",
                          1e3 * (bar.first_s - bar.begin_s), 1e3 * (bar.end_s - bar.begin_s),
                          record->cached_tokens, record->prompt_tokens, record->output_tokens);
    bars.push_back(std::move(bar));
  }
  return TimelineChart(bars, index, end_s);
}

std::string Card(const std::string& title, const std::string& content,
                 const char* classes = "card") {
  if (content.empty()) return {};
  return fmt::format("<div class=\"{}\"><h2>{}</h2>\n{}</div>\n", classes, EscapeXml(title),
                     content);
}

std::string Tile(const BenchServeReport& report, const char* key, const char* title) {
  for (const BenchMetric& metric : BenchMetrics()) {
    if (std::string_view(metric.key) != key) continue;
    std::string content;
    for (size_t i = 0; i < report.servers.size(); ++i) {
      content += fmt::format("<p class=\"big\"><span class=\"key f{}\"></span>{}</p>", i,
                             FormatMetric(metric, report.servers[i].summary));
    }
    const double ratio = MetricRatio(metric, report);
    if (!std::isnan(ratio)) content += fmt::format("<p class=\"dim\">A / B = {:.3g}</p>", ratio);
    return Card(title, content);
  }
  return {};
}

std::string Table(const BenchServeReport& report) {
  const bool two = report.servers.size() > 1;
  std::string html = "<table><tr><th></th>";
  for (const BenchedServer& server : report.servers) html += "<th>" + server.label + "</th>";
  html += two ? "<th>A / B</th></tr>\n" : "</tr>\n";
  std::string group;
  for (const BenchMetric& metric : BenchMetrics()) {
    if (group != metric.group) {
      group = metric.group;
      html += fmt::format("<tr class=\"group\"><td colspan=\"4\">{}</td></tr>\n", group);
    }
    html += fmt::format("<tr><td>{}</td>", metric.label);
    for (const BenchedServer& server : report.servers) {
      html += "<td>" + FormatMetric(metric, server.summary) + "</td>";
    }
    const double ratio = MetricRatio(metric, report);
    if (two) html += std::isnan(ratio) ? "<td>-</td>" : fmt::format("<td>{:.3g}</td>", ratio);
    html += "</tr>\n";
  }
  html += "<tr class=\"group\"><td colspan=\"4\">requests</td></tr>\n<tr><td>answered</td>";
  for (const BenchedServer& server : report.servers) {
    html += fmt::format("<td>{}</td>", server.summary.succeeded);
  }
  html += two ? "<td></td></tr>\n<tr><td>failed</td>" : "</tr>\n<tr><td>failed</td>";
  for (const BenchedServer& server : report.servers) {
    html += fmt::format("<td>{}</td>", server.summary.requests - server.summary.succeeded);
  }
  return html + (two ? "<td></td></tr></table>\n" : "</tr></table>\n");
}

std::string Errors(const BenchServeReport& report) {
  std::string html;
  for (const BenchedServer& server : report.servers) {
    for (const auto& [kind, error] : server.summary.errors) {
      html += fmt::format("<p>{}: {} &times; <b>{}</b>: {}</p>\n", server.label, error.count,
                          EscapeXml(kind), EscapeXml(error.example));
    }
    if (server.summary.not_asked > 0) {
      html += fmt::format("<p>{}: {} later turns of failed conversations were not asked</p>\n",
                          server.label, server.summary.not_asked);
    }
  }
  return html;
}

}  // namespace

std::string ToHtml(const BenchServeReport& report) {
  std::string html = kHead;
  html += fmt::format("<h1>Load on {}</h1>\n<p>{}{}</p>\n",
                      report.servers.size() > 1 ? "two servers" : "one server",
                      EscapeXml(DescribeLoad(report)), report.interrupted ? " (interrupted)" : "");
  for (size_t i = 0; i < report.servers.size(); ++i) {
    const BenchedServer& server = report.servers[i];
    html += fmt::format("<p><span class=\"key f{}\"></span>{}: {} &middot; {}</p>\n", i,
                        server.label, EscapeXml(server.url), EscapeXml(server.model));
  }
  html += fmt::format("<p class=\"dim\">{}, seed {}</p>\n<div class=\"tiles\">\n", report.started,
                      report.plan.seed);
  html += Tile(report, "output_tok_s", "output tokens a second");
  html += Tile(report, "ttft_ms_p95", "time to first token, p95, ms");
  html += Tile(report, "gap_ms_p95", "gap between tokens, p95, ms");
  html += Tile(report, "cached_percent", "prompt tokens reused, %");
  html += "</div>\n<div class=\"grid2\">\n" + Card("Errors", Errors(report));
  html += "</div>\n<div class=\"grid2\">\n" + Card("Numbers", Table(report), "card tall");
  std::vector<ChartSeries> first, gaps, latencies, rates;
  const double end_s = LongestRound(report);
  for (const BenchedServer& server : report.servers) {
    first.push_back(CumulativeShare(server.label, FirstTokenTimes(server.rounds)));
    gaps.push_back(CumulativeShare(server.label, Gaps(server.rounds)));
    latencies.push_back(CumulativeShare(server.label, Latencies(server.rounds)));
    if (end_s > 0.0) rates.push_back(TokenRate(server, end_s));
  }
  const auto cumulative = [](const std::vector<ChartSeries>& series) {
    return LineChart({"ms", "% of all", /*log_x=*/true, /*y_max=*/100.0}, series);
  };
  html += Card("Time to first token", cumulative(first));
  html += Card("Gap between tokens", cumulative(gaps));
  html += Card("Whole request", cumulative(latencies));
  html += Card("Output over time", LineChart({"s", "tokens/s"}, rates));
  for (size_t i = 0; i < report.servers.size(); ++i) {
    html += Card(fmt::format("Requests of {} in round 1: waiting (light), answering (dark)",
                             report.servers[i].label),
                 Timeline(report, static_cast<int>(i), end_s));
  }
  return html + "</div></body></html>\n";
}

}  // namespace kvasir
