// SvgChart: lines, areas and bars as SVG text for a page of our own: no script, no library.
//
// Colours come from the page's style sheet: series i has the classes "s<i>" (stroke) or "f<i>"
// (fill), or those with another ending if it says so; axes "axis", labels "label". Texts are
// escaped here.
#ifndef KVASIR_APP_SVG_CHART_H_
#define KVASIR_APP_SVG_CHART_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir {

struct ChartSeries {
  std::string name;                               // In the tooltip.
  std::vector<std::pair<double, double>> points;  // Ascending in x.
  bool steps = false;                             // A staircase; else straight lines.
  std::string colour;                             // Of its classes, instead of its number.
};

// How many per cent of `values` are at most x, as a staircase of at most a few hundred points.
ChartSeries CumulativeShare(std::string name, std::vector<double> values);

struct ChartAxes {
  std::string x_label;
  std::string y_label;
  bool log_x = false;  // Points with x <= 0 are drawn at the left edge.
  double y_max = 0.0;  // 0: from the points.
  double x_max = 0.0;  // The same; charts with equal ends can be compared.
};

// Empty when no series has a point.
std::string LineChart(const ChartAxes& axes, const std::vector<ChartSeries>& series);

// Layers that lie on each other, the first at the bottom: the y of each is its own thickness. All
// have the same x; `lines` are drawn over them. Not logarithmic. Empty when there is no point.
std::string AreaChart(const ChartAxes& axes, const std::vector<ChartSeries>& layers,
                      const std::vector<ChartSeries>& lines);

// Horizontal bars from 0, each with its number behind it.
struct ValueBar {
  std::string label;
  double value = 0.0;
  std::string value_text;
  std::string colour;  // Of its class: "f<colour>".
};
std::string BarChart(const std::vector<ValueBar>& bars, const std::string& label);

// One horizontal bar for each request: waiting, then answering.
struct TimeBar {
  double begin_s = 0.0;
  double first_s = 0.0;  // Where waiting ends; end_s when nothing came.
  double end_s = 0.0;
  bool failed = false;
  std::string title;
};

// `series` chooses the colour; charts with the same `end_s` can be compared.
std::string TimelineChart(const std::vector<TimeBar>& bars, int series, double end_s);

// & < > " as entities.
std::string EscapeXml(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_APP_SVG_CHART_H_
