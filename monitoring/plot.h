// Plots on a drawing: a panel with axes, marks in it, a legend, contours of a function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "monitoring/svg.h"

namespace anabranch {

struct PlotPoint {
  double x, y;
};

struct Axis {
  std::string label;
  double min = 0, max = 1;
};

// Where something stands on a drawing, in pixels.
struct Box {
  double left, top, width, height;
};

// Round numbers (1, 2 or 5 times a power of ten apart) from `min` to `max`, `most` at most (2 or
// more). Throws Error unless min < max.
std::vector<double> round_ticks(double min, double max, int64_t most);

// A tick's number as text: 0.25, 2, 1e-05.
std::string tick_text(double value);

// Axes around a box. Marks are in the axes' units and cut off at its border.
class Panel {
 public:
  // Draws frame, grid, ticks and labels; they take 48 px left of the box, 40 below, 24 above.
  //
  //   name  an XML name, unique in the drawing
  Panel(Svg& svg, std::string name, const std::string& title, Box box, Axis x, Axis y);

  // A pixel of the drawing.
  [[nodiscard]] PlotPoint at(PlotPoint value) const;

  // Marks of a class list, as svg_series() gives it: "s0 line", "rim dashed".
  void line(const std::vector<PlotPoint>& points, const std::string& classes);
  void dots(const std::vector<PlotPoint>& points, const std::string& classes);
  void crosses(const std::vector<PlotPoint>& points, const std::string& classes);
  // The area between two lines, filled.
  void band(const std::vector<PlotPoint>& upper, const std::vector<PlotPoint>& lower,
            const std::string& classes);
  // Rectangles from one corner to the opposite one, filled.
  void areas(const std::vector<PlotPoint>& corners, const std::string& classes);

 private:
  void frame(const std::string& title);
  void path(const std::string& d, const std::string& classes);

  Svg& svg_;
  std::string name_;
  Box box_;
  Axis x_, y_;
};

// A sample of a mark and what it means.
struct LegendEntry {
  std::string mark;  // line, dots, crosses, shade
  std::string classes, text;
};

// A row of entries from a place on; `y` is the middle of the letters.
void legend(Svg& svg, PlotPoint begin, const std::vector<LegendEntry>& entries);

// A function on a grid over a plot: values[j * columns + i] at (x_i, y_j), both from their axis'
// min to its max in equal steps.
struct PlotGrid {
  Axis x, y;
  int64_t columns = 2, rows = 2;
  std::vector<double> values;

  [[nodiscard]] PlotPoint at(int64_t i, int64_t j) const;
};

// Where the function is 0, by linear interpolation: lines, the closed ones with equal ends.
// Source: Lorensen & Cline, "Marching Cubes", 1987, in two dimensions.
std::vector<std::vector<PlotPoint>> zero_contours(const PlotGrid& grid);

// Where it is above 0, as cells around its points: corners, as Panel::areas takes them.
std::vector<PlotPoint> positive_areas(const PlotGrid& grid);

}  // namespace anabranch
