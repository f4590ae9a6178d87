// One plot of lines with bands, as large as its legend needs: what reports draw.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace anabranch {

// Points in the order of x; those that are not finite are left out.
struct LineSeries {
  std::string name;  // in the legend; empty: not there
  std::vector<double> x, y;
  std::vector<double> low = {}, high = {};  // of a band; empty: none
  bool has_dots = false, has_line = true;
  int colour = -1;  // its number among the series; -1: the next
};

struct LinePlot {
  std::string id;  // an XML name, unique on a page
  std::string title, x_label, y_label;
  std::vector<LineSeries> series;
  double highest = std::numeric_limits<double>::infinity();  // that is shown
};

// The drawing as SVG text. Large x stand in k, M, G, ...; the label says so.
std::string draw_lines(const LinePlot& plot);

// A plot and the name of its file, without ending.
struct NamedDrawing {
  std::string name, svg;
};

// Text as part of a file's name and of an XML name: other characters than letters, digits, "-" and
// "_" become "_".
std::string file_word(const std::string& text);

}  // namespace anabranch
