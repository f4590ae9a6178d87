#include "monitoring/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/base/error.h"

namespace anabranch {
namespace {

constexpr double kCross = 2.5;  // half a cross, px

std::string pair_text(PlotPoint p) { return svg_number(p.x) + " " + svg_number(p.y); }

std::string cross_at(PlotPoint p) {
  const std::string d = svg_number(2 * kCross);
  return join("M", pair_text({p.x - kCross, p.y - kCross}), "l", d, " ", d, "m-", d, " 0l", d, " -",
              d);
}

}  // namespace

std::vector<double> round_ticks(double min, double max, int64_t most) {
  AB_CHECK(min < max && most >= 2, "ticks from ", min, " to ", max, ", ", most, " at most");
  const double power =
      std::pow(10, std::floor(std::log10((max - min) / static_cast<double>(most))));
  for (const double factor : {1.0, 2.0, 5.0, 10.0, 20.0, 50.0}) {
    const double step = factor * power;
    const double first = std::ceil(min / step - 1e-9), last = std::floor(max / step + 1e-9);
    if (last - first + 1 > static_cast<double>(most)) continue;
    std::vector<double> ticks;
    for (double i = first; i <= last; ++i) ticks.push_back(i * step + 0.0);  // not -0
    return ticks;
  }
  AB_FAIL("no ticks from ", min, " to ", max);
}

std::string tick_text(double value) {
  std::array<char, 40> digits{};
  std::snprintf(digits.data(), digits.size(), "%.6g", value == 0 ? 0 : value);  // no -0
  return digits.data();
}

Panel::Panel(Svg& svg, std::string name, const std::string& title, Box box, Axis x, Axis y)
    : svg_(svg), name_(std::move(name)), box_(box), x_(std::move(x)), y_(std::move(y)) {
  frame(title);
}

PlotPoint Panel::at(PlotPoint value) const {
  return {box_.left + box_.width * (value.x - x_.min) / (x_.max - x_.min),
          box_.top + box_.height * (y_.max - value.y) / (y_.max - y_.min)};
}

void Panel::frame(const std::string& title) {
  const double right = box_.left + box_.width, bottom = box_.top + box_.height;
  const Svg::Attributes rect{{"x", svg_number(box_.left)},
                             {"y", svg_number(box_.top)},
                             {"width", svg_number(box_.width)},
                             {"height", svg_number(box_.height)}};
  svg_.open("clipPath", {{"id", name_}});
  svg_.add("rect", rect);
  svg_.close();
  const auto write = [&](PlotPoint p, const char* anchor, const char* classes,
                         const std::string& text) {
    svg_.add("text",
             {{"class", classes},
              {"x", svg_number(p.x)},
              {"y", svg_number(p.y)},
              {"text-anchor", anchor}},
             text);
  };
  std::string grid;
  for (const double tick : round_ticks(x_.min, x_.max, 8)) {
    const double x = at({tick, y_.min}).x;
    grid += join("M", pair_text({x, box_.top}), "V", svg_number(bottom));
    write({x, bottom + 16}, "middle", "muted small", tick_text(tick));
  }
  for (const double tick : round_ticks(y_.min, y_.max, 6)) {
    const double y = at({x_.min, tick}).y;
    grid += join("M", pair_text({box_.left, y}), "H", svg_number(right));
    write({box_.left - 6, y + 4}, "end", "muted small", tick_text(tick));
  }
  svg_.add("path", {{"class", "grid"}, {"d", grid}});
  Svg::Attributes border = rect;
  border.insert(border.begin(), {"class", "axis"});
  svg_.add("rect", border);
  write({box_.left, box_.top - 10}, "start", "ink title", title);
  write({box_.left + box_.width / 2, bottom + 33}, "middle", "muted", x_.label);
  const PlotPoint side{box_.left - 36, box_.top + box_.height / 2};
  svg_.add("text",
           {{"class", "muted"},
            {"text-anchor", "middle"},
            {"transform", join("translate(", pair_text(side), ") rotate(-90)")}},
           y_.label);
}

void Panel::path(const std::string& d, const std::string& classes) {
  if (d.empty()) return;
  svg_.add("path", {{"class", classes}, {"clip-path", join("url(#", name_, ")")}, {"d", d}});
}

void Panel::line(const std::vector<PlotPoint>& points, const std::string& classes) {
  std::string d;
  for (const PlotPoint& p : points) d += join(d.empty() ? "M" : "L", pair_text(at(p)));
  path(d, classes);
}

void Panel::dots(const std::vector<PlotPoint>& points, const std::string& classes) {
  std::string d;
  for (const PlotPoint& p : points) d += join("M", pair_text(at(p)), "h0");  // its round caps
  path(d, classes);
}

void Panel::crosses(const std::vector<PlotPoint>& points, const std::string& classes) {
  std::string d;
  for (const PlotPoint& p : points) d += cross_at(at(p));
  path(d, classes);
}

void Panel::band(const std::vector<PlotPoint>& upper, const std::vector<PlotPoint>& lower,
                 const std::string& classes) {
  std::string d;
  for (const PlotPoint& p : upper) d += join(d.empty() ? "M" : "L", pair_text(at(p)));
  for (auto p = lower.rbegin(); p != lower.rend(); ++p) d += join("L", pair_text(at(*p)));
  path(d.empty() ? d : d + "Z", classes);
}

void Panel::areas(const std::vector<PlotPoint>& corners, const std::string& classes) {
  std::string d;
  for (size_t i = 0; i + 1 < corners.size(); i += 2) {
    const PlotPoint a = at(corners[i]), b = at(corners[i + 1]);
    d += join("M", pair_text(a), "H", svg_number(b.x), "V", svg_number(b.y), "H", svg_number(a.x),
              "Z");
  }
  path(d, classes);
}

void legend(Svg& svg, PlotPoint begin, const std::vector<LegendEntry>& entries) {
  constexpr double kSample = 16, kGap = 6, kLetter = 6.2, kBetween = 18;
  double x = begin.x;
  for (const LegendEntry& entry : entries) {
    const PlotPoint middle{x + kSample / 2, begin.y};
    std::string d;
    if (entry.mark == "dots") {
      d = join("M", pair_text(middle), "h0");
    } else if (entry.mark == "crosses") {
      d = cross_at(middle);
    } else if (entry.mark == "shade") {
      d = join("M", pair_text({x, begin.y - 5}), "h16v10h-16Z");
    } else {
      AB_CHECK(entry.mark == "line", "a legend has no mark \"", entry.mark, "\"");
      d = join("M", pair_text({x, begin.y}), "h16");
    }
    svg.add("path", {{"class", entry.classes}, {"d", d}});
    svg.add(
        "text",
        {{"class", "ink"}, {"x", svg_number(x + kSample + kGap)}, {"y", svg_number(begin.y + 4)}},
        entry.text);
    x += kSample + kGap + kLetter * static_cast<double>(entry.text.size()) + kBetween;
  }
}

PlotPoint PlotGrid::at(int64_t i, int64_t j) const {
  const auto place = [](const Axis& axis, int64_t k, int64_t count) {
    return axis.min +
           (axis.max - axis.min) * static_cast<double>(k) / static_cast<double>(count - 1);
  };
  return {place(x, i, columns), place(y, j, rows)};
}

}  // namespace anabranch
