#include "runtime/report/paper_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/base/error.h"

namespace anabranch {

namespace {

using Rows = std::vector<std::vector<double>>;

constexpr size_t kMostSteps = 120, kMostLayers = 6, kMostParts = 12;

struct Line {
  const char *metric, *name;  // in metrics.jsonl; in the legend, empty: its parts or layers
};

// One of the papers' figures: its lines share an axis.
struct FigureSpec {
  const char *name, *title, *axis;
  std::array<Line, 3> lines;
};

// Sources: cMoLLM figure 3; kappa-SwiGLU figures 4, 5, 9, 10; expert choice has its load.
constexpr std::array kFigures{
    FigureSpec{"gate-weights", "gate weights of streams", "mean gate", {{{"stream_load", ""}}}},
    FigureSpec{"expert-load", "load of experts", "share of slots", {{{"expert_load", ""}}}},
    FigureSpec{"router-gate-cosine",
               "router-gate cosine",
               "mean cosine",
               {{{"router_gate_cosine", "mean"}, {"router_gate_alignment", "mean magnitude"}}}},
    FigureSpec{"induced-bias",
               "induced bias",
               "gate input along the router",
               {{{"induced_bias_low", "5%"},
                 {"induced_bias_median", "median"},
                 {"induced_bias_high", "95%"}}}},
    FigureSpec{"kappa",
               "kappa",
               "kappa",
               {{{"kappa_low", "5%"}, {"kappa_median", "median"}, {"kappa_high", "95%"}}}},
    FigureSpec{"alpha-b",
               "alpha and b",
               "mean of the positive ones",
               {{{"positive_alpha", "alpha"}, {"positive_bias", "b"}}}}};

// Runs' figures of one step, by name of the step.
using BySteps = std::map<int64_t, std::vector<const Rows*>>;

BySteps collect(const SweepReport& report, size_t point, const std::string& name) {
  BySteps all;
  for (const size_t r : report.points[point].runs) {
    for (const MixtureReport& line : report.runs[r].series.mixture) {
      const auto found = line.figures.find(name);
      if (found != line.figures.end()) all[line.step].push_back(&found->second);
    }
  }
  return all;
}

bool same_shape(const Rows& a, const Rows& b) {
  return std::ranges::equal(a, b, {}, &std::vector<double>::size, &std::vector<double>::size);
}

// Mean and range, element by element.
void add_step(MixtureFigure& figure, int64_t step, const std::vector<const Rows*>& runs) {
  Rows mean = *runs[0], low = mean, high = mean;
  for (size_t layer = 0; layer < mean.size(); ++layer) {
    for (size_t part = 0; part < mean[layer].size(); ++part) {
      double sum = 0;
      for (const Rows* run : runs) {
        const double value = (*run)[layer][part];
        sum += value;
        low[layer][part] = std::min(low[layer][part], value);
        high[layer][part] = std::max(high[layer][part], value);
      }
      mean[layer][part] = sum / static_cast<double>(runs.size());
    }
  }
  figure.steps.push_back(step);
  figure.mean.push_back(std::move(mean));
  figure.low.push_back(std::move(low));
  figure.high.push_back(std::move(high));
}

LineSeries over_training(const MixtureFigure& figure, size_t layer, size_t part,
                         const std::string& name) {
  LineSeries series{.name = name, .x = {}, .y = {}};
  const size_t stride = (figure.steps.size() + kMostSteps - 1) / kMostSteps;
  for (size_t i = (figure.steps.size() - 1) % stride; i < figure.steps.size(); i += stride) {
    if (layer >= figure.mean[i].size() || part >= figure.mean[i][layer].size()) continue;
    series.x.push_back(static_cast<double>(figure.steps[i]));
    series.y.push_back(figure.mean[i][layer][part]);
    series.low.push_back(figure.low[i][layer][part]);
    series.high.push_back(figure.high[i][layer][part]);
  }
  return series;
}

LineSeries by_layer(const MixtureFigure& figure, size_t part, const std::string& name) {
  LineSeries series{.name = name, .x = {}, .y = {}, .has_dots = true};
  for (const size_t layer : figure.layers()) {
    if (part >= figure.mean.back()[layer].size()) continue;
    series.x.push_back(static_cast<double>(layer));
    series.y.push_back(figure.mean.back()[layer][part]);
    series.low.push_back(figure.low.back()[layer][part]);
    series.high.push_back(figure.high.back()[layer][part]);
  }
  return series;
}

// Up to `most` of some layers, first and last among them.
std::vector<size_t> some_of(const std::vector<size_t>& layers, size_t most) {
  if (layers.size() <= most) return layers;
  std::vector<size_t> some;
  for (size_t i = 0; i < most; ++i) some.push_back(layers[i * (layers.size() - 1) / (most - 1)]);
  return some;
}

class PointFigures {
 public:
  PointFigures(const SweepReport& report, size_t point, std::vector<NamedDrawing>& drawings)
      : report_(report), point_(point), drawings_(drawings) {}

  void draw(const FigureSpec& spec) {
    std::vector<std::pair<std::string, MixtureFigure>> lines;
    for (const Line& line : spec.lines) {
      if (line.metric == nullptr) continue;
      MixtureFigure figure = mixture_figure(report_, point_, line.metric);
      if (!figure.steps.empty() && !figure.layers().empty()) {
        lines.emplace_back(line.name, std::move(figure));
      }
    }
    if (lines.empty()) return;
    const std::vector<size_t> layers = lines[0].second.layers();
    const size_t middle = layers[layers.size() / 2];
    const bool has_parts = lines[0].first.empty();
    LinePlot training = plot(spec, "training", join(", layer ", middle), "step");
    LinePlot depth = plot(spec, "layers", " at the end", "layer");
    const size_t parts =
        has_parts ? std::min(lines[0].second.mean.back()[middle].size(), kMostParts) : 1;
    for (const auto& [name, figure] : lines) {
      for (size_t part = 0; part < parts; ++part) {
        const std::string word = has_parts ? join(part) : name;
        training.series.push_back(over_training(figure, middle, part, word));
        depth.series.push_back(by_layer(figure, part, word));
      }
    }
    add(std::move(training));
    if (layers.size() < 2) return;
    add(std::move(depth));
    if (!has_parts && lines.size() < 3) draw_layers(spec, lines[0].second, lines[0].first);
  }

 private:
  // Its first line, over training in several layers.
  void draw_layers(const FigureSpec& spec, const MixtureFigure& figure, const std::string& name) {
    LinePlot all = plot(spec, "training-layers", join(", ", name, ", by layer"), "step");
    for (const size_t layer : some_of(figure.layers(), kMostLayers)) {
      all.series.push_back(over_training(figure, layer, 0, join("layer ", layer)));
    }
    add(std::move(all));
  }

  [[nodiscard]] LinePlot plot(const FigureSpec& spec, const char* kind, const std::string& what,
                              const char* x) const {
    const std::string& id = report_.record.points[point_].id;
    return {join("f", point_, "-", spec.name, "-", kind),
            join(id, ": ", spec.title, what),
            x,
            spec.axis,
            {}};
  }

  void add(LinePlot&& plot) {
    const std::string name =
        file_word(report_.record.points[point_].id) + plot.id.substr(plot.id.find('-'));
    drawings_.push_back({name, draw_lines(plot)});
  }

  const SweepReport& report_;
  size_t point_;
  std::vector<NamedDrawing>& drawings_;
};

}  // namespace

std::vector<size_t> MixtureFigure::layers() const {
  std::vector<size_t> found;
  for (size_t layer = 0; !mean.empty() && layer < mean.back().size(); ++layer) {
    const std::vector<double>& parts = mean.back()[layer];
    if (std::ranges::any_of(parts, [](double v) { return std::isfinite(v); }))
      found.push_back(layer);
  }
  return found;
}

MixtureFigure mixture_figure(const SweepReport& report, size_t point, const std::string& name) {
  MixtureFigure figure;
  const size_t runs = report.points[point].runs.size();
  for (const auto& entry : collect(report, point, name)) {
    const std::vector<const Rows*>& rows = entry.second;
    if (rows.size() < runs) continue;
    const bool even = std::ranges::all_of(
        rows, [&rows](const Rows* other) { return same_shape(*rows[0], *other); });
    if (even) add_step(figure, entry.first, rows);
  }
  return figure;
}

std::vector<NamedDrawing> paper_figures(const SweepReport& report) {
  std::vector<NamedDrawing> drawings;
  for (size_t p = 0; p < report.points.size(); ++p) {
    PointFigures figures(report, p, drawings);
    for (const FigureSpec& spec : kFigures) figures.draw(spec);
  }
  return drawings;
}

}  // namespace anabranch
