#include <array>

#include "core/base/error.h"
#include "monitoring/plot.h"

namespace anabranch {
namespace {

void check(const PlotGrid& grid) {
  AB_CHECK(
      grid.columns >= 2 && grid.rows >= 2 && std::ssize(grid.values) == grid.columns * grid.rows,
      "a grid of ", grid.columns, " x ", grid.rows, " has ", grid.values.size(), " values");
}

// A corner of a cell: its place and its value.
struct Corner {
  PlotPoint at;
  double value;

  [[nodiscard]] bool above() const { return value > 0; }
};

PlotPoint crossing(const Corner& a, const Corner& b) {
  const double t = a.value / (a.value - b.value);
  return {a.at.x + t * (b.at.x - a.at.x), a.at.y + t * (b.at.y - a.at.y)};
}

}  // namespace

std::vector<PlotPoint> zero_contour(const PlotGrid& grid) {
  check(grid);
  std::vector<PlotPoint> ends;
  const auto corner = [&](int64_t i, int64_t j) {
    return Corner{grid.at(i, j), grid.values[static_cast<size_t>(j * grid.columns + i)]};
  };
  for (int64_t j = 0; j + 1 < grid.rows; ++j) {
    for (int64_t i = 0; i + 1 < grid.columns; ++i) {
      const std::array<Corner, 4> round{corner(i, j), corner(i + 1, j), corner(i + 1, j + 1),
                                        corner(i, j + 1)};
      std::vector<PlotPoint> met;
      for (size_t k = 0; k < 4; ++k) {
        const Corner &a = round[k], &b = round[(k + 1) % 4];
        if (a.above() != b.above()) met.push_back(crossing(a, b));
      }
      // Four crossings are a saddle: the middle says which corners belong together.
      const double middle = (round[0].value + round[1].value + round[2].value + round[3].value) / 4;
      if (met.size() == 4 && (middle > 0) == round[0].above()) {
        met = {met[0], met[1], met[2], met[3]};
      } else if (met.size() == 4) {
        met = {met[3], met[0], met[1], met[2]};
      }
      ends.insert(ends.end(), met.begin(), met.end());
    }
  }
  return ends;
}

std::vector<PlotPoint> positive_areas(const PlotGrid& grid) {
  check(grid);
  const PlotPoint first = grid.at(0, 0), next = grid.at(1, 1);
  const double half_x = (next.x - first.x) / 2, half_y = (next.y - first.y) / 2;
  std::vector<PlotPoint> corners;
  for (int64_t j = 0; j < grid.rows; ++j) {
    const double* row = grid.values.data() + j * grid.columns;
    for (int64_t i = 0; i < grid.columns;) {
      int64_t end = i;
      while (end < grid.columns && row[end] > 0) ++end;
      if (end > i) {
        const PlotPoint a = grid.at(i, j), b = grid.at(end - 1, j);
        corners.push_back({a.x - half_x, a.y - half_y});
        corners.push_back({b.x + half_x, b.y + half_y});
      }
      i = end + 1;
    }
  }
  return corners;
}

}  // namespace anabranch
