#include "runtime/toy/boundary_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "monitoring/plot.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {

constexpr int64_t kColumns = 241, kRows = 161;
constexpr int64_t kMostPoints = 1200;  // drawn
constexpr double kWidth = 900, kHeight = 400;
constexpr double kMargin = 3;  // standard deviations around the centres, and some more

struct View {
  int64_t second;  // which coordinate is drawn upwards
  Axis x, y;
};

View view_of(const ClusterDataKeys& keys) {
  const auto centre = cluster_centre(keys, 0, 1);
  const int64_t second = std::abs(centre[2]) > std::abs(centre[1]) + 1e-9 * keys.offset ? 2 : 1;
  const double around = kMargin * keys.sigma + 0.25 * keys.offset;
  const double x = keys.distance + around;
  const double y = std::abs(centre[static_cast<size_t>(second)]) + around;
  return {second, {"x1", -x, x}, {join("x", second + 1), -y, y}};
}

// The places of a grid over the view, as points to classify.
Tensor places(const PlotGrid& grid, const View& view) {
  Tensor x({grid.columns * grid.rows, kClusterDims}, DType::kF32);
  x.fill_zero();
  for (int64_t j = 0; j < grid.rows; ++j) {
    for (int64_t i = 0; i < grid.columns; ++i) {
      float* row = x.data<float>() + (j * grid.columns + i) * kClusterDims;
      row[0] = static_cast<float>(grid.at(i, j).x);
      row[view.second] = static_cast<float>(grid.at(i, j).y);
    }
  }
  return x;
}

void draw_sides(Panel& panel, PlotGrid grid, const Tensor& logits) {
  const std::span<const float> z = logits.span<float>();
  grid.values.assign(z.begin(), z.end());
  panel.areas(positive_areas(grid), svg_series(0, "shade"));
  PlotGrid negative = grid;
  for (double& value : negative.values) value = value > 0 ? -1 : 1;
  panel.areas(positive_areas(negative), svg_series(1, "shade"));
  for (const auto& line : zero_contours(grid)) panel.line(line, "rim");
}

// Where another stream gets the largest gate.
void draw_gates(Panel& panel, PlotGrid grid, const Tensor& gates) {
  const int64_t N = gates.dim(1);
  for (int64_t k = 1; k < N; ++k) {  // the first one's borders are others' too
    grid.values.clear();
    for (int64_t i = 0; i < gates.dim(0); ++i) {
      const float* g = gates.data<float>() + i * N;
      float rival = g[0];
      for (int64_t j = 1; j < N; ++j) rival = j == k ? rival : std::max(rival, g[j]);
      grid.values.push_back(g[k] - rival);
    }
    for (const auto& line : zero_contours(grid)) panel.line(line, "rim dashed");
  }
}

void draw_points(Panel& panel, const View& view, PointClassifier& classifier,
                 const ClusterPoints& points) {
  const int64_t M = std::min(points.x.dim(0), kMostPoints);
  const Tensor logits = classifier(points.x.view(0, {M, kClusterDims})).logits.value();
  std::array<std::vector<PlotPoint>, 2> hits, misses;  // by label
  for (int64_t i = 0; i < M; ++i) {
    const float* x = points.x.data<float>() + i * kClusterDims;
    const size_t label = points.labels.data<uint8_t>()[i];
    const bool hit = (logits.data<float>()[i] > 0) == (label == 1);
    (hit ? hits : misses)[label].push_back({x[0], x[view.second]});
  }
  for (const size_t label : {size_t{0}, size_t{1}}) {
    const int64_t series = label == 1 ? 0 : 1;
    panel.dots(hits[label], svg_series(series, "dots"));
    panel.crosses(misses[label], svg_series(series, "crosses"));
  }
}

void draw_panel(Svg& svg, const std::string& name, Box box, const View& view,
                const ClassifierResult& result, const ClusterPoints& points) {
  std::array<char, 40> percent{};
  std::snprintf(percent.data(), percent.size(), "%.2f%%", 100 * result.test_errors.front());
  Panel panel(svg, name, join(name, ": ", percent.data(), " of the test points missed"), box,
              view.x, view.y);
  const PlotGrid grid{view.x, view.y, kColumns, kRows, {}};
  const auto scores = (*result.first)(places(grid, view));
  draw_sides(panel, grid, scores.logits.value());
  draw_points(panel, view, *result.first, points);
  if (result.first->streams() > 1) draw_gates(panel, grid, scores.gates.value());
}

}  // namespace

std::string draw_boundaries(const ClustersConfig& config, ClustersResult& result) {
  const ClusterDataKeys& d = config.data;
  const std::string what = join("Clusters with theta0 ", number_text(d.angle), " degrees, sigma ",
                                number_text(d.sigma), ", c ", number_text(d.distance), ", delta ",
                                number_text(d.offset), "; seed ", config.seed);
  Svg svg(kWidth, kHeight, "Decision boundaries. " + what);
  const View view = view_of(d);
  svg.add("text", {{"class", "ink title"}, {"x", "16"}, {"y", "24"}}, what);
  const double y = 74, width = 378, height = 240;
  draw_panel(svg, "dense", {56, y, width, height}, view, result.dense, result.test);
  draw_panel(svg, "mixed", {506, y, width, height}, view, result.mixed, result.test);
  const int64_t shown = std::min(d.test_points, kMostPoints);
  legend(svg, {56, kHeight - 24},
         {{"dots", svg_series(0, "dots"), "label 1"},
          {"dots", svg_series(1, "dots"), "label 0"},
          {"crosses", svg_series(0, "crosses"), "missed"},
          {"line", "rim", "decision boundary"},
          {"line", "rim dashed", "gates change"},
          {"shade", svg_series(0, "shade"), "taken for label 1"},
          {"shade", svg_series(1, "shade"), "for 0"}});
  svg.add("text", {{"class", "muted small"}, {"x", "884"}, {"y", "24"}, {"text-anchor", "end"}},
          join(shown, " of ", d.test_points, " test points, without x", 5 - (view.second + 1),
               "; sides where that is 0"));
  return svg.text();
}

}  // namespace anabranch
