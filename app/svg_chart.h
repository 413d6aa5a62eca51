// SvgChart: lines and bars as SVG text for a page of our own: no script, no library.
//
// Colours come from the page's style sheet: series i has the classes "s<i>" (stroke) or "f<i>"
// (fill); axes "axis", labels "label". Texts are escaped here.
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
};

struct ChartAxes {
  std::string x_label;
  std::string y_label;
  bool log_x = false;  // Points with x <= 0 are drawn at the left edge.
  double y_max = 0.0;  // 0: from the points.
};

// Empty when no series has a point.
std::string LineChart(const ChartAxes& axes, const std::vector<ChartSeries>& series);

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
