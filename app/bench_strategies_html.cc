// The page of `kvasir bench strategies --html`: one file, readable without script or network.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench_strategies_report.h"
#include "svg_chart.h"

namespace kvasir {
namespace {

constexpr size_t kMostPoints = 300;  // Of a curve.
constexpr double kMiB = 1024.0 * 1024.0;

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>kvasir bench strategies</title>
<style>
:root { color-scheme: light dark; --bg: #fff; --ink: #1c2430; --dim: #66707e; --line: #e3e7ec;
  --card: #f7f8fa; --c0: #c2417c; --c1: #b45309; --c2: #2563c9; --c3: #0f8a5f;
  --waste: #e5484d; --free: #e9edf2; --good: #0f8a5f; --bad: #c02c3a; }
@media (prefers-color-scheme: dark) { :root { --bg: #14181d; --ink: #e4e8ee; --dim: #939daa;
  --line: #2b323b; --card: #1b2027; --c0: #ff8fc0; --c1: #ffab5e; --c2: #6ea8ff; --c3: #4fd1a0;
  --waste: #ff6b70; --free: #262d36; --good: #4fd1a0; --bad: #ff6b78; } }
body { margin: 0 auto; padding: 24px 20px 48px; max-width: 1400px; background: var(--bg);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 15px; margin: 0 0 8px; }
p { margin: 4px 0; } .dim { color: var(--dim); } .good { color: var(--good); }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin: 0 6px 0 14px; }
.tiles, .grid2 { display: grid; gap: 16px; margin-top: 16px; align-items: start; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); }
.grid2 { grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px 16px; overflow-x: auto; }
.wide { margin-top: 16px; }
.big { font-size: 24px; font-weight: 600; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 8px; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.group td { padding-top: 10px; font-weight: 600; }
tr:not(.group) td { border-bottom: 1px solid var(--line); }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); } .axis { stroke: var(--dim); fill: none; }
.label { fill: var(--dim); font-size: 11px; } .value { fill: var(--ink); }
.line { fill: none; stroke-width: 2; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); }
.s3 { stroke: var(--c3); } .sneeded { stroke: var(--ink); stroke-dasharray: 5 4; }
.f0 { fill: var(--c0); background: var(--c0); } .f1 { fill: var(--c1); background: var(--c1); }
.f2 { fill: var(--c2); background: var(--c2); } .f3 { fill: var(--c3); background: var(--c3); }
.fwaste { fill: var(--waste); background: var(--waste); opacity: 0.75; }
.ffree { fill: var(--free); background: var(--free); }
.bad { color: var(--bad); }
.tabs > input { position: absolute; opacity: 0; }
.tabs > label { display: inline-block; margin: 20px 6px 0 0; padding: 4px 14px; cursor: pointer;
  border: 1px solid var(--line); border-radius: 16px; }
.tabs > .pane { display: none; }
)";

// Colours stand for strategies, whatever the rows that were asked for.
std::string ColourOf(KvStrategy strategy) {
  const std::vector<KvStrategy> all = AllKvStrategies();
  const auto found = std::find(all.begin(), all.end(), strategy);
  return fmt::format("{}", (found - all.begin()) % 4);
}

std::string Card(const std::string& title, const std::string& content,
                 const char* classes = "card") {
  if (content.empty()) return {};
  return fmt::format("<div class=\"{}\"><h2>{}</h2>\n{}</div>\n", classes, EscapeXml(title),
                     content);
}

using Rows = std::vector<const StrategyRow*>;

Rows RowsOf(const StrategiesReport& report, const KvTypes& types) {
  Rows rows;
  for (const StrategyRow& row : report.rows) {
    if (row.ok() && row.types == types) rows.push_back(&row);
  }
  return rows;
}

std::vector<KvTypes> TypesOf(const StrategiesReport& report) {
  std::vector<KvTypes> all;
  for (const StrategyRow& row : report.rows) {
    if (std::find(all.begin(), all.end(), row.types) == all.end()) all.push_back(row.types);
  }
  return all;
}

std::string Legend(const Rows& rows) {
  std::string html = "<p class=\"dim\">";
  for (const StrategyRow* row : rows) {
    html += fmt::format("<span class=\"key f{}\"></span>{}", ColourOf(row->strategy),
                        KvStrategyName(row->strategy));
  }
  return html + "</p>\n";
}

// The share of values up to each value, in percent.
template <typename Value>
ChartSeries OverTime(const StrategyRow& row, const std::string& name, const std::string& colour,
                     Value value) {
  const std::vector<StrategySample>& samples = row.outcome.samples;
  ChartSeries series;
  series.name = name;
  series.colour = colour;
  const size_t stride = std::max<size_t>(1, samples.size() / kMostPoints);
  for (size_t i = 0; i < samples.size(); i += stride) {
    series.points.emplace_back(samples[i].end_s, value(samples[i]));
  }
  if (!samples.empty() && (samples.size() - 1) % stride != 0) {
    series.points.emplace_back(samples.back().end_s, value(samples.back()));
  }
  return series;
}

double LongestRun(const Rows& rows) {
  double longest_s = 0.0;
  for (const StrategyRow* row : rows) {
    longest_s = std::max(longest_s, row->outcome.load.wall_s);
  }
  return longest_s;
}

std::string MemoryChart(const StrategiesReport& report, const StrategyRow& row, double end_s) {
  using S = StrategySample;
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
  const std::vector<ChartSeries> layers = {
      OverTime(row, "holds tokens", ColourOf(row.strategy),
               [&](const S& s) { return mib(s.usage.used); }),
      OverTime(row, "reserved and empty", "waste",
               [&](const S& s) { return mib(s.usage.wasted()); }),
      OverTime(row, "free", "free",
               [&](const S& s) { return mib(s.usage.total - s.usage.reserved); }),
  };
  const std::vector<ChartSeries> lines = {
      OverTime(row, "of it needed by running requests", "needed",
               [&](const S& s) { return mib(s.usage.reserved - s.usage.idle); })};
  ChartAxes axes;
  axes.x_label = "seconds";
  axes.y_label = "MiB";
  axes.x_max = end_s;
  axes.y_max = mib(report.budget_bytes);
  return AreaChart(axes, layers, lines);
}

std::string Pane(const StrategiesReport& report, const Rows& rows) {
  if (rows.empty()) return "<p class=\"bad\">None of the strategies could be run.</p>\n";
  const double end_s = LongestRun(rows);
  std::vector<ChartSeries> company, first;
  for (const StrategyRow* row : rows) {
    company.push_back(OverTime(*row, std::string(KvStrategyName(row->strategy)),
                               ColourOf(row->strategy),
                               [](const StrategySample& s) { return double{1} * s.running; }));
    company.back().steps = true;
    first.push_back(CumulativeShare(std::string(KvStrategyName(row->strategy)),
                                    FirstTokenTimes({row->outcome.load})));
    first.back().colour = ColourOf(row->strategy);
  }
  ChartAxes time;
  time.x_label = "seconds";
  time.y_label = "requests";
  time.x_max = end_s;
  std::string html = "<div class=\"grid2\">\n";
  html += Card("Requests at once", LineChart(time, company) + Legend(rows));
  html += Card(
      "Time to first token",
      LineChart({"ms", "% of requests", /*log_x=*/true, /*y_max=*/100.0}, first) + Legend(rows));
  for (const StrategyRow* row : rows) {
    const std::string keys = fmt::format(
        "<p class=\"dim\"><span class=\"key f{}\"></span>holds tokens<span class=\"key "
        "fwaste\"></span>reserved and empty<span class=\"key ffree\"></span>free &middot; dashed: "
        "needed by running requests</p>\n",
        ColourOf(row->strategy));
    html += Card(fmt::format("Memory of {}: {:.1f} % of what it reserves is empty",
                             KvStrategyName(row->strategy), 100.0 * row->wasted_share),
                 MemoryChart(report, *row, end_s) + keys);
  }
  return html + "</div>\n";
}

std::string Bars(const StrategiesReport& report, const char* key) {
  for (const StrategyMetric& metric : StrategyMetrics()) {
    if (std::string_view(metric.key) != key) continue;
    std::vector<ValueBar> bars;
    for (const StrategyRow& row : report.rows) {
      if (!row.ok()) continue;
      bars.push_back({fmt::format("{} {}", KvStrategyName(row.strategy), KvTypesName(row.types)),
                      metric.value(row), FormatMetric(metric, row), ColourOf(row.strategy)});
    }
    return BarChart(bars, metric.label);
  }
  return {};
}

std::string Table(const StrategiesReport& report) {
  std::string html = "<table><tr><th></th>";
  for (const StrategyRow& row : report.rows) {
    html += fmt::format("<th>{}<br>{}</th>", KvStrategyName(row.strategy), KvTypesName(row.types));
  }
  html += "</tr>\n";
  std::string group;
  for (const StrategyMetric& metric : StrategyMetrics()) {
    if (group != metric.group) {
      group = metric.group;
      html += fmt::format("<tr class=\"group\"><td colspan=\"{}\">{}</td></tr>\n",
                          report.rows.size() + 1, group);
    }
    html += fmt::format("<tr><td>{}</td>", metric.label);
    for (const StrategyRow& row : report.rows) html += "<td>" + FormatMetric(metric, row) + "</td>";
    html += "</tr>\n";
  }
  return html +
         "</table>\n<p class=\"dim\">Means and peaks are of the ends of all steps. Times are "
         "this machine's; everything else repeats exactly.</p>\n";
}

std::string Verdicts(const StrategiesReport& report) {
  const bool wrong = FindDifference(report).has_value();
  std::string html = fmt::format("<p class=\"{}\">{}</p>\n", wrong ? "bad" : "good",
                                 EscapeXml(DescribeAnswers(report)));
  for (const std::string& line : DescribeCompany(report))
    html += "<p>" + EscapeXml(line) + "</p>\n";
  for (const StrategyRow& row : report.rows) {
    if (row.ok()) continue;
    html += fmt::format("<p class=\"bad\">{} {}: {}</p>\n", KvStrategyName(row.strategy),
                        EscapeXml(KvTypesName(row.types)), EscapeXml(row.problem));
  }
  return html;
}

}  // namespace

std::string ToHtml(const StrategiesReport& report) {
  const std::vector<KvTypes> types = TypesOf(report);
  std::string html = kHead;
  for (size_t i = 0; i < types.size(); ++i) {
    html += fmt::format(
        "#t{0}:checked ~ #p{0} {{ display: block; }}\n#t{0}:checked + label {{ background: "
        "var(--ink); color: var(--bg); }}\n#t{0}:focus-visible + label {{ outline: 2px solid "
        "var(--c2); }}\n",
        i);
  }
  html += "</style></head><body>\n<h1>Ways to keep KV, the same load on each</h1>\n";
  html += fmt::format("<p>{}{}</p>\n<p>{}</p>\n<p class=\"dim\">{} &middot; {} &middot; {}</p>\n",
                      EscapeXml(DescribeLoad(report)), report.interrupted ? " (interrupted)" : "",
                      EscapeXml(DescribeMemory(report)), EscapeXml(report.model),
                      EscapeXml(report.machine), EscapeXml(report.started));
  html += Card("Verdict", Verdicts(report), "card wide");
  html += "<div class=\"grid2\">\n";
  html += Card("Requests a second", Bars(report, "requests_s"));
  html += Card("Most requests at once", Bars(report, "most_at_once"));
  html += Card("Tokens held at once, most", Bars(report, "peak_tokens"));
  html += Card("Reserved and empty, % of reserved", Bars(report, "wasted_percent"));
  html += "</div>\n<div class=\"tabs\">\n";
  std::string panes;
  for (size_t i = 0; i < types.size(); ++i) {
    html += fmt::format(
        "<input type=\"radio\" name=\"type\" id=\"t{0}\"{1}><label "
        "for=\"t{0}\">{2}</label>\n",
        i, i == 0 ? " checked" : "", EscapeXml(KvTypesName(types[i])));
    panes += fmt::format("<div class=\"pane\" id=\"p{}\">\n{}</div>\n", i,
                         Pane(report, RowsOf(report, types[i])));
  }
  html += panes + "</div>\n" + Card("Numbers", Table(report), "card wide");
  return html + "</body></html>\n";
}

}  // namespace kvasir
