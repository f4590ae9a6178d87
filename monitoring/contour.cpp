#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/base/error.h"
#include "monitoring/plot.h"

namespace anabranch {
namespace {

void check(const PlotGrid& grid) {
  AB_CHECK(
      grid.columns >= 2 && grid.rows >= 2 && std::ssize(grid.values) == grid.columns * grid.rows,
      "a grid of ", grid.columns, " x ", grid.rows, " has ", grid.values.size(), " values");
}

// The crossings of the grid's edges, and which two of them lie in one cell. Edge 2 p goes right
// from point p, edge 2 p + 1 up.
class Crossings {
 public:
  explicit Crossings(const PlotGrid& grid) : grid_(grid) {
    for (int64_t j = 0; j + 1 < grid.rows; ++j) {
      for (int64_t i = 0; i + 1 < grid.columns; ++i) join_cell(j * grid.columns + i);
    }
  }

  // The lines that the pieces make up: first those that begin at the border, then the closed ones.
  std::vector<std::vector<PlotPoint>> lines() {
    std::vector<std::vector<PlotPoint>> all;
    for (const size_t ends : {size_t{1}, size_t{2}}) {
      for (const auto& [edge, next] : next_) {
        if (next.size() == ends && !seen_.contains(edge)) all.push_back(follow(edge));
      }
    }
    return all;
  }

 private:
  [[nodiscard]] double value(int64_t point) const {
    return grid_.values[static_cast<size_t>(point)];
  }

  [[nodiscard]] bool above(int64_t point) const { return value(point) > 0; }

  void join_cell(int64_t p) {
    const int64_t up = p + grid_.columns;
    const std::array<int64_t, 4> corners{p, p + 1, up + 1, up};
    const std::array<int64_t, 4> edges{2 * p, 2 * (p + 1) + 1, 2 * up, 2 * p + 1};
    std::vector<int64_t> met;
    for (size_t k = 0; k < 4; ++k) {
      if (above(corners[k]) != above(corners[(k + 1) % 4])) met.push_back(edges[k]);
    }
    if (met.size() == 4) {  // a saddle: the middle says which two corners belong together
      const double middle = value(p) + value(p + 1) + value(up + 1) + value(up);
      if ((middle > 0) != above(p)) std::rotate(met.begin(), met.begin() + 3, met.end());
    }
    for (size_t k = 0; k + 1 < met.size(); k += 2) {
      next_[met[k]].push_back(met[k + 1]);
      next_[met[k + 1]].push_back(met[k]);
    }
  }

  std::vector<PlotPoint> follow(int64_t edge) {
    std::vector<PlotPoint> line;
    const int64_t first = edge;
    for (bool more = true; more;) {
      seen_.insert(edge);
      line.push_back(place(edge));
      more = false;
      for (const int64_t to : next_.at(edge)) {
        if (more || seen_.contains(to)) continue;
        edge = to;
        more = true;
      }
    }
    if (next_.at(first).size() == 2) line.push_back(line.front());
    return line;
  }

  [[nodiscard]] PlotPoint place(int64_t edge) const {
    const int64_t p = edge / 2, q = edge % 2 == 0 ? p + 1 : p + grid_.columns;
    const PlotPoint a = grid_.at(p % grid_.columns, p / grid_.columns);
    const PlotPoint b = grid_.at(q % grid_.columns, q / grid_.columns);
    const double t = value(p) / (value(p) - value(q));
    return {a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)};
  }

  const PlotGrid& grid_;
  std::map<int64_t, std::vector<int64_t>> next_;
  std::set<int64_t> seen_;
};

}  // namespace

std::vector<std::vector<PlotPoint>> zero_contours(const PlotGrid& grid) {
  check(grid);
  return Crossings(grid).lines();
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
