#include "monitoring/charts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/base/error.h"
#include "monitoring/plot.h"

namespace anabranch {

namespace {

constexpr double kWidth = 350, kHeight = 230;
constexpr Box kBox{46, 34, 292, 134};
constexpr double kLegendY = 219;  // the middle of its letters

struct Range {
  double min = std::numeric_limits<double>::infinity(), max = -min;

  void take(double value) {
    min = std::min(min, value);
    max = std::max(max, value);
  }

  [[nodiscard]] bool empty() const { return min > max; }
};

// A power of 1000 and what it is called in front of a unit.
struct Prefix {
  double factor = 1;
  const char* name = "";
};

Prefix prefix_of(double value) {
  constexpr std::array<Prefix, 6> kAll{
      {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}}};
  for (const Prefix& prefix : kAll) {
    if (std::fabs(value) >= prefix.factor) return prefix;
  }
  return value == 0 || std::fabs(value) >= 0.1 ? Prefix{} : Prefix{1e-3, "m"};
}

// Steps have no prefix of small numbers; values without a unit, such as a loss, have none.
Prefix prefix_of(const Range& range, const std::string& unit) {
  const double largest = std::max(std::fabs(range.min), std::fabs(range.max));
  return unit.empty() ? Prefix{} : prefix_of(largest);
}

// Room around what is drawn; a single value gets some too.
Axis axis_of(const Range& range, bool from_zero, double factor) {
  const double low = from_zero ? std::min(0.0, range.min) : range.min;
  double room = 0.06 * (range.max - low);
  if (room <= 0) room = std::max(0.05 * std::fabs(range.max), factor * 1e-6);
  return {"", (from_zero ? low : low - room) / factor, (range.max + room) / factor};
}

// "kB", "k tokens/s".
std::string prefixed(const Prefix& prefix, const std::string& unit) {
  return join(prefix.name, *prefix.name != '\0' && unit.size() > 3 ? " " : "", unit);
}

std::string title_of(const ChartText& text, const Prefix& prefix) {
  const std::string unit = prefixed(prefix, text.unit);
  return unit.empty() ? text.title : text.title + ", " + unit;
}

std::string empty_chart(const ChartText& text) {
  Svg svg(kWidth, kHeight, text.title);
  const auto write = [&](double x, double y, const char* classes, const std::string& words) {
    svg.add("text", {{"class", classes}, {"x", svg_number(x)}, {"y", svg_number(y)}}, words);
  };
  write(kBox.left, kBox.top - 12, "ink title", text.title);
  write(kBox.left, kBox.top + 50, "muted", "not known yet");
  return svg.text();
}

// The axes of a chart, values in units of its prefixes.
class Chart {
 public:
  Chart(const ChartText& text, Range x, Range y)
      : svg_(kWidth, kHeight, text.title),
        x_prefix_(x.max >= 10000 ? Prefix{1e3, "k"} : Prefix{}),
        y_prefix_(prefix_of(y, text.unit)),
        panel_(svg_, text.id, title_of(text, y_prefix_), kBox, x_axis(x),
               axis_of(y, text.from_zero, y_prefix_.factor)) {}

  [[nodiscard]] PlotPoint place(double x, double y) const {
    return {x / x_prefix_.factor, y / y_prefix_.factor};
  }

  Panel& panel() { return panel_; }

  // The newest value, over the right end.
  void newest(double value) {
    std::array<char, 40> digits{};
    std::snprintf(digits.data(), digits.size(), "%.4g", value / y_prefix_.factor);
    svg_.add("text",
             {{"class", "ink title"},
              {"x", svg_number(kBox.left + kBox.width)},
              {"y", svg_number(kBox.top - 12)},
              {"text-anchor", "end"}},
             digits.data());
  }

  // A sample of each series by the legend's mark, drawn as the series are.
  void add_legend(const std::vector<ChartSeries>& series, const char* sample, const char* mark) {
    std::vector<LegendEntry> entries;
    for (size_t i = 0; i < series.size(); ++i) {
      if (series[i].name.empty()) continue;
      entries.push_back({sample, svg_series(static_cast<int64_t>(i), mark), series[i].name});
    }
    legend(svg_, {8, kLegendY}, entries);
  }

  [[nodiscard]] std::string text() const { return svg_.text(); }

 private:
  [[nodiscard]] Axis x_axis(const Range& x) const {
    const std::string label = std::string("step") + (x_prefix_.factor > 1 ? ", thousands" : "");
    return {label, x.min / x_prefix_.factor,
            (x.max > x.min ? x.max : x.min + 1) / x_prefix_.factor};
  }

  Svg svg_;
  Prefix x_prefix_, y_prefix_;
  Panel panel_;
};

std::vector<ChartSeries> first_of(const std::vector<ChartSeries>& series) {
  return {series.begin(), series.begin() + std::min<int64_t>(std::ssize(series), Svg::kSeries)};
}

}  // namespace

std::string line_chart(const ChartText& text, const std::vector<ChartSeries>& all) {
  const std::vector<ChartSeries> series = first_of(all);
  Range x, y;
  for (const ChartSeries& one : series) {
    for (const auto& [step, value] : one.points) {
      x.take(step);
      y.take(value);
    }
  }
  if (y.empty()) return empty_chart(text);
  Chart chart(text, x, y);
  for (size_t i = 0; i < series.size(); ++i) {
    std::vector<PlotPoint> points;
    for (const auto& [step, value] : series[i].points) points.push_back(chart.place(step, value));
    const auto number = static_cast<int64_t>(i);
    chart.panel().line(points, svg_series(number, "line"));
    if (points.size() < 30) chart.panel().dots(points, svg_series(number, "dots"));
  }
  if (!series[0].points.empty()) chart.newest(series[0].points.back().second);
  chart.add_legend(series, "line", "line");
  return chart.text();
}

std::string stacked_chart(const ChartText& text, const std::vector<ChartSeries>& all) {
  const std::vector<ChartSeries> series = first_of(all);
  const size_t steps = series.empty() ? 0 : series[0].points.size();
  Range x, y;
  for (size_t k = 0; k < steps; ++k) {
    double sum = 0;
    for (const ChartSeries& one : series) sum += one.points.at(k).second;
    x.take(series[0].points[k].first);
    y.take(sum);
  }
  if (steps < 2) return empty_chart(text);
  y.take(0);
  Chart chart(text, x, y);
  std::vector<double> base(steps, 0.0);
  for (size_t i = 0; i < series.size(); ++i) {
    std::vector<PlotPoint> corners;
    for (size_t k = 1; k < steps; ++k) {
      const double height = series[i].points[k].second;
      corners.push_back(chart.place(series[i].points[k - 1].first, base[k]));
      corners.push_back(chart.place(series[i].points[k].first, base[k] + height));
      base[k] += height;
    }
    chart.panel().areas(corners, svg_series(static_cast<int64_t>(i), "fill"));
  }
  chart.newest(base.back());
  chart.add_legend(series, "shade", "fill");
  return chart.text();
}

std::string share_map(const ChartText& text, const std::string& part,
                      const std::vector<std::vector<double>>& rows) {
  constexpr double kLeft = 46, kTop = 34, kRoom = 292, kMost = 20;
  size_t columns = 1;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  const double width = kRoom / static_cast<double>(columns);
  const double height = std::min(kMost, 360 / std::max(1.0, static_cast<double>(rows.size())));
  const double bottom = kTop + height * static_cast<double>(rows.size());
  Svg svg(kWidth, bottom + 30, text.title);
  const auto write = [&](PlotPoint at, const char* anchor, const std::string& classes,
                         const std::string& words) {
    svg.add("text",
            {{"class", classes},
             {"x", svg_number(at.x)},
             {"y", svg_number(at.y)},
             {"text-anchor", anchor}},
            words);
  };
  write({kLeft, kTop - 12}, "start", "ink title", text.title);
  const size_t every = 1 + static_cast<size_t>(14 / height);  // labels that do not touch
  for (size_t r = 0; r < rows.size(); ++r) {
    const double y = kTop + height * static_cast<double>(r);
    if (r % every == 0) {
      write({kLeft - 6, y + height / 2 + 4}, "end", "muted small", std::to_string(r));
    }
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const double share = rows[r][c] * static_cast<double>(rows[r].size());
      if (!std::isfinite(share)) continue;
      svg.open("rect", {{"class", "s0 fill"},
                        {"x", svg_number(kLeft + width * static_cast<double>(c))},
                        {"y", svg_number(y)},
                        {"width", svg_number(std::max(width - 1, 0.5))},
                        {"height", svg_number(std::max(height - 1, 0.5))},
                        {"fill-opacity", svg_number(std::clamp(share / 2, 0.02, 1.0))}});
      svg.add("title", {}, join("layer ", r, ", ", part, " ", c, ": ", short_number(rows[r][c])));
      svg.close();
    }
  }
  write({kLeft + kRoom / 2, bottom + 18}, "middle", "muted", join(part, " 0 to ", columns - 1));
  write({12, kTop - 12}, "start", "muted small", "layer");
  return svg.text();
}

std::string short_number(double value, const std::string& unit) {
  if (!std::isfinite(value)) return "\u2013";
  const Prefix prefix = unit.empty() && std::fabs(value) < 1 ? Prefix{} : prefix_of(value);
  const double scaled = value / prefix.factor;
  std::array<char, 400> digits{};
  std::snprintf(digits.data(), digits.size(), std::fabs(scaled) < 100 ? "%.3g" : "%.0f", scaled);
  const std::string tail = prefixed(prefix, unit);
  return tail.empty() ? digits.data() : digits.data() + (" " + tail);
}

}  // namespace anabranch
