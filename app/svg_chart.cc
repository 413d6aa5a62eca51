#include "svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

// The drawing area in a view box that the page scales.
constexpr double kWidth = 640.0;
constexpr double kLeft = 56.0;
constexpr double kRight = 14.0;
constexpr double kTop = 12.0;
constexpr double kBottom = 40.0;
constexpr double kHeight = 300.0;

// 1, 2 or 5 times a power of ten, so that about five steps fit into `span`.
double NiceStep(double span) {
  const double power = std::pow(10.0, std::floor(std::log10(span / 5.0)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (span / (factor * power) <= 6.0) return factor * power;
  }
  return 10.0 * power;
}

class Scale {
 public:
  Scale(double low, double high, bool log, double from, double to)
      : low_(low), high_(high), log_(log), from_(from), to_(to) {}

  double At(double value) const {
    const double clamped = std::clamp(value, low_, high_);
    const double share = log_ ? std::log(clamped / low_) / std::log(high_ / low_)
                              : (clamped - low_) / (high_ - low_);
    return from_ + share * (to_ - from_);
  }

  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (log_) {
      // Few decades: also 2 and 5.
      const bool fine = high_ / low_ < 2e3;
      for (double power = std::pow(10.0, std::floor(std::log10(low_))); power <= high_;
           power *= 10.0) {
        for (const double factor : {1.0, 2.0, 5.0}) {
          const double tick = factor * power;
          if (factor > 1.0 && !fine) continue;
          if (tick >= low_ * 0.999 && tick <= high_ * 1.001) ticks.push_back(tick);
        }
      }
      return ticks;
    }
    const double step = NiceStep(high_ - low_);
    for (int i = 0; low_ + i * step <= high_ * 1.0001; ++i) ticks.push_back(low_ + i * step);
    return ticks;
  }

 private:
  double low_, high_;
  bool log_;
  double from_, to_;
};

std::string Begin(double height, std::string_view label) {
  return fmt::format("<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\">\n", kWidth,
                     height, EscapeXml(label));
}

void AddXAxis(const Scale& x, std::string_view label, double bottom, std::string* svg) {
  for (const double tick : x.Ticks()) {
    *svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:g}\" y2=\"{2:g}\"/>"
        "<text class=\"label\" x=\"{0:.1f}\" y=\"{3:g}\" text-anchor=\"middle\">{4:g}</text>\n",
        x.At(tick), kTop, bottom, bottom + 15.0, tick);
  }
  *svg +=
      fmt::format("<text class=\"label\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\">{}</text>\n",
                  (kLeft + kWidth - kRight) / 2.0, bottom + 33.0, EscapeXml(label));
}

void AddYAxis(const Scale& y, std::string_view label, std::string* svg) {
  for (const double tick : y.Ticks()) {
    *svg += fmt::format(
        "<line class=\"grid\" x1=\"{1:g}\" x2=\"{2:g}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/>"
        "<text class=\"label\" x=\"{3:g}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
        y.At(tick), kLeft, kWidth - kRight, kLeft - 6.0, y.At(tick) + 4.0, tick);
  }
  *svg += fmt::format(
      "<text class=\"label\" transform=\"translate(13 {:g}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      (kTop + kHeight - kBottom) / 2.0, EscapeXml(label));
}

std::string Path(const ChartSeries& series, const Scale& x, const Scale& y) {
  std::string path;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const double px = x.At(series.points[i].first);
    const double py = y.At(series.points[i].second);
    if (i == 0) {
      path += fmt::format("M{:.1f} {:.1f}", px, py);
    } else if (series.steps) {
      path += fmt::format("H{:.1f}V{:.1f}", px, py);
    } else {
      path += fmt::format("L{:.1f} {:.1f}", px, py);
    }
  }
  return path;
}

std::string ColourOf(const ChartSeries& series, size_t index) {
  return series.colour.empty() ? fmt::format("{}", index) : series.colour;
}

// Axes with their grid; the chart is not closed yet.
std::string Frame(const ChartAxes& axes, const Scale& x, const Scale& y) {
  const double bottom = kHeight - kBottom;
  std::string svg = Begin(kHeight, axes.y_label + " over " + axes.x_label);
  AddXAxis(x, axes.x_label, bottom, &svg);
  AddYAxis(y, axes.y_label, &svg);
  svg += fmt::format("<path class=\"axis\" d=\"M{0:g} {1:g}V{2:g}H{3:g}\"/>\n", kLeft, kTop, bottom,
                     kWidth - kRight);
  return svg;
}

void AddLines(const std::vector<ChartSeries>& series, const Scale& x, const Scale& y,
              std::string* svg) {
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty()) continue;
    *svg += fmt::format("<path class=\"line s{}\" d=\"{}\"><title>{}</title></path>\n",
                        ColourOf(series[i], i), Path(series[i], x, y), EscapeXml(series[i].name));
  }
}

}  // namespace

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

ChartSeries CumulativeShare(std::string name, std::vector<double> values) {
  constexpr size_t kMostPoints = 400;
  std::sort(values.begin(), values.end());
  ChartSeries series;
  series.name = std::move(name);
  series.steps = true;
  if (values.empty()) return series;
  const size_t count = values.size();
  const size_t stride = std::max<size_t>(1, count / kMostPoints);
  series.points.emplace_back(values.front(), 0.0);
  for (size_t i = 0; i < count; i += stride) {
    series.points.emplace_back(values[i],
                               100.0 * static_cast<double>(i + 1) / static_cast<double>(count));
  }
  series.points.emplace_back(values.back(), 100.0);
  return series;
}

std::string LineChart(const ChartAxes& axes, const std::vector<ChartSeries>& series) {
  double x_low = INFINITY;
  double x_high = 0.0;
  double y_high = axes.y_max;
  for (const ChartSeries& one : series) {
    for (const auto& [x, y] : one.points) {
      if (!axes.log_x || x > 0.0) x_low = std::min(x_low, x);
      x_high = std::max(x_high, x);
      if (axes.y_max <= 0.0) y_high = std::max(y_high, y * 1.05);
    }
  }
  if (x_high <= 0.0) return {};
  if (axes.x_max > 0.0) x_high = axes.x_max;
  if (!axes.log_x) {
    x_low = 0.0;
  } else if (x_high < x_low * 4.0) {
    // Nothing to spread out: show where it lies.
    x_low /= 2.0;
    x_high *= 2.0;
  }
  if (y_high <= 0.0) y_high = 1.0;
  const double bottom = kHeight - kBottom;
  const Scale x(x_low, x_high, axes.log_x, kLeft, kWidth - kRight);
  const Scale y(0.0, y_high, false, bottom, kTop);
  std::string svg = Frame(axes, x, y);
  AddLines(series, x, y, &svg);
  return svg + "</svg>\n";
}

std::string AreaChart(const ChartAxes& axes, const std::vector<ChartSeries>& layers,
                      const std::vector<ChartSeries>& lines) {
  if (layers.empty() || layers[0].points.empty()) return {};
  const size_t count = layers[0].points.size();
  // tops[i]: of the layers up to the running one, at point i.
  std::vector<double> tops(count, 0.0);
  double y_high = axes.y_max;
  if (y_high <= 0.0) {
    for (size_t i = 0; i < count; ++i) {
      double sum = 0.0;
      for (const ChartSeries& layer : layers) sum += layer.points[i].second;
      y_high = std::max(y_high, sum);
    }
  }
  if (y_high <= 0.0) y_high = 1.0;
  const double x_high = axes.x_max > 0.0 ? axes.x_max : layers[0].points.back().first;
  const Scale x(0.0, std::max(x_high, 1e-9), false, kLeft, kWidth - kRight);
  const Scale y(0.0, y_high, false, kHeight - kBottom, kTop);
  std::string svg = Frame(axes, x, y);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    std::string up, down;
    for (size_t i = 0; i < count; ++i) {
      const double px = x.At(layers[layer].points[i].first);
      down = fmt::format("L{:.1f} {:.1f}", px, y.At(tops[i])) + down;
      tops[i] += layers[layer].points[i].second;
      up += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", px, y.At(tops[i]));
    }
    svg += fmt::format("<path class=\"f{}\" d=\"{}{}Z\"><title>{}</title></path>\n",
                       ColourOf(layers[layer], layer), up, down, EscapeXml(layers[layer].name));
  }
  AddLines(lines, x, y, &svg);
  return svg + "</svg>\n";
}

std::string BarChart(const std::vector<ValueBar>& bars, const std::string& label) {
  constexpr double kRow = 22.0;
  constexpr double kNames = 110.0;   // Of the bars, at their left,
  constexpr double kNumbers = 64.0;  // and the numbers behind them.
  double most = 0.0;
  for (const ValueBar& bar : bars) most = std::max(most, bar.value);
  if (most <= 0.0) return {};
  const Scale x(0.0, most, false, kNames, kWidth - kNumbers);
  std::string svg = Begin(kRow * static_cast<double>(bars.size()) + 4.0, label);
  for (size_t i = 0; i < bars.size(); ++i) {
    const double top = kRow * static_cast<double>(i) + 2.0;
    svg += fmt::format(
        "<text class=\"label\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>"
        "<rect class=\"f{}\" x=\"{:g}\" y=\"{:g}\" width=\"{:.1f}\" height=\"{:g}\" rx=\"3\"/>"
        "<text class=\"label value\" x=\"{:.1f}\" y=\"{:g}\">{}</text>\n",
        kNames - 8.0, top + 14.0, EscapeXml(bars[i].label), bars[i].colour, kNames, top,
        std::max(x.At(bars[i].value) - kNames, 1.0), kRow - 4.0, x.At(bars[i].value) + 6.0,
        top + 14.0, EscapeXml(bars[i].value_text));
  }
  return svg + "</svg>\n";
}

std::string TimelineChart(const std::vector<TimeBar>& bars, int series, double end_s) {
  if (bars.empty() || end_s <= 0.0) return {};
  const double row = std::clamp(400.0 / static_cast<double>(bars.size()), 2.0, 12.0);
  const double bottom = kTop + row * static_cast<double>(bars.size());
  const Scale x(0.0, end_s, false, kLeft, kWidth - kRight);
  std::string svg = Begin(bottom + kBottom, "requests over time");
  AddXAxis(x, "seconds after the start of the round", bottom, &svg);
  for (size_t i = 0; i < bars.size(); ++i) {
    const TimeBar& bar = bars[i];
    const double top = kTop + row * static_cast<double>(i);
    const auto rectangle = [&](double from, double to, const std::string& style) {
      return fmt::format(
          "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
          style, x.At(from), top, std::max(x.At(to) - x.At(from), 0.5), row * 0.8);
    };
    svg += "<g><title>" + EscapeXml(bar.title) + "</title>";
    if (bar.failed) {
      svg += rectangle(bar.begin_s, bar.end_s, "bad");
    } else {
      svg += rectangle(bar.begin_s, bar.first_s, fmt::format("wait f{}", series));
      svg += rectangle(bar.first_s, bar.end_s, fmt::format("f{}", series));
    }
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace kvasir
