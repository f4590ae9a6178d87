#include "runtime/report/line_plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"
#include "monitoring/plot.h"

namespace anabranch {

namespace {

constexpr double kWidth = 460, kLeft = 56, kTop = 44, kPlotWidth = 388, kPlotHeight = 210;
constexpr double kBelow = 56, kLegendRow = 18;

struct Unit {
  double factor = 1;
  std::string name;
};

// Of the axis: a power of 1000.
Unit unit_of(double largest) {
  constexpr std::array kNames{"k", "M", "G", "T", "P", "E", "Z"};
  Unit unit;
  for (size_t i = 0; i < kNames.size() && largest >= 1e4 * unit.factor; ++i) {
    unit.factor *= 1000;
    unit.name = kNames[i];
  }
  return unit;
}

struct Range {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  void take(double value) {
    if (!std::isfinite(value)) return;
    min = std::min(min, value);
    max = std::max(max, value);
  }

  // Never empty, with some air above and below.
  void widen(double share) {
    if (min > max) min = max = 0;
    const double air = max > min ? share * (max - min) : std::max(std::abs(max) * 0.05, 0.5);
    min -= air;
    max += air;
  }
};

bool is_drawn(const LineSeries& series, size_t i) {
  return std::isfinite(series.x[i]) && std::isfinite(series.y[i]);
}

std::vector<PlotPoint> points_of(const LineSeries& series, const std::vector<double>& y,
                                 double factor) {
  std::vector<PlotPoint> points;
  for (size_t i = 0; i < y.size(); ++i) {
    if (is_drawn(series, i) && std::isfinite(y[i])) points.push_back({series.x[i] / factor, y[i]});
  }
  return points;
}

std::string classes(int colour, const char* mark) {
  return svg_series(colour, mark) + (colour >= Svg::kSeries ? " dashed" : "");
}

// Rows of a legend that are no wider than the plot.
std::vector<std::vector<LegendEntry>> legend_rows(const LinePlot& plot) {
  std::vector<std::vector<LegendEntry>> rows;
  double x = kWidth;
  for (size_t s = 0; s < plot.series.size(); ++s) {
    const LineSeries& series = plot.series[s];
    if (series.name.empty()) continue;
    const double width = 40 + 6.2 * static_cast<double>(series.name.size());
    if (x + width > kWidth - 12) {
      rows.emplace_back();
      x = kLeft;
    }
    x += width;
    const char* mark = series.has_line ? "line" : "dots";
    const int colour = series.colour < 0 ? static_cast<int>(s) : series.colour;
    rows.back().push_back({mark, classes(colour, mark), series.name});
  }
  return rows;
}

void draw_series(Panel& panel, const LineSeries& series, int colour, double factor) {
  panel.band(points_of(series, series.high, factor), points_of(series, series.low, factor),
             svg_series(colour, "shade"));
  const std::vector<PlotPoint> points = points_of(series, series.y, factor);
  if (series.has_line) panel.line(points, classes(colour, "line"));
  if (series.has_dots) panel.dots(points, svg_series(colour, "dots"));
}

}  // namespace

std::string draw_lines(const LinePlot& plot) {
  Range x, y;
  for (const LineSeries& series : plot.series) {
    AB_CHECK(series.x.size() == series.y.size() && series.low.size() == series.high.size(),
             "series \"", series.name, "\" of ", plot.id, " has uneven columns");
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!is_drawn(series, i)) continue;
      x.take(series.x[i]);
      y.take(std::min(series.y[i], plot.highest));
      if (!series.low.empty()) y.take(std::min(series.low[i], plot.highest));
      if (!series.high.empty()) y.take(std::min(series.high[i], plot.highest));
    }
  }
  x.widen(0.02);
  y.widen(0.06);
  const Unit unit = unit_of(std::max(std::abs(x.min), std::abs(x.max)));
  const auto rows = legend_rows(plot);
  const double legend_top = kTop + kPlotHeight + kBelow;
  Svg svg(kWidth, legend_top + kLegendRow * static_cast<double>(rows.size()), plot.title);
  const std::string label = plot.x_label + (unit.name.empty() ? "" : ", " + unit.name);
  Panel panel(svg, plot.id, plot.title, {kLeft, kTop, kPlotWidth, kPlotHeight},
              {label, x.min / unit.factor, x.max / unit.factor}, {plot.y_label, y.min, y.max});
  for (size_t s = 0; s < plot.series.size(); ++s) {
    const int colour = plot.series[s].colour < 0 ? static_cast<int>(s) : plot.series[s].colour;
    draw_series(panel, plot.series[s], colour, unit.factor);
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    legend(svg, {kLeft, legend_top + kLegendRow * static_cast<double>(r)}, rows[r]);
  }
  return svg.text();
}

std::string file_word(const std::string& text) {
  std::string word;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    word += plain || c == '-' ? c : '_';
  }
  return word;
}

}  // namespace anabranch
