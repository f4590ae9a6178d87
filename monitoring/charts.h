// Charts of a page: small enough for a phone, each an SVG drawing.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace anabranch {

struct ChartSeries {
  std::string name;  // in the legend; empty: no legend
  std::vector<std::pair<double, double>> points;
};

struct ChartText {
  std::string id;  // an XML name, unique on the page
  std::string title;
  std::string unit;        // "s", "B"; values take a prefix (k, M, G or m) in front of it
  bool from_zero = false;  // whether the axis begins there
};

// Lines over steps, of the first six series. Without two points at least it says that nothing is
// known yet.
std::string line_chart(const ChartText& text, const std::vector<ChartSeries>& all);

// Areas on top of each other, likewise; the series have the same steps.
std::string stacked_chart(const ChartText& text, const std::vector<ChartSeries>& all);

// Rows of cells, the more the darker: full at twice the even share, 1 / cells of a row.
//
//   rows  [layer][part]; not-a-number: unknown
std::string share_map(const ChartText& text, const std::string& part,
                      const std::vector<std::vector<double>>& rows);

// "12.3 k": a value with a prefix for thousands and three digits, or those of its whole part.
std::string short_number(double value, const std::string& unit = {});

}  // namespace anabranch
