#include "runtime/planner/scale.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "monitoring/plot.h"
#include "runtime/config/number.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {
namespace {

std::vector<Cluster> clusters(const std::vector<int>& ranks, int ranks_per_host) {
  std::vector<Cluster> all;
  for (const int n : ranks) {
    if (n > ranks_per_host && n % ranks_per_host != 0) {
      throw config_error(n, " ranks are no whole number of hosts of ", ranks_per_host,
                         ": nearest are ", n / ranks_per_host * ranks_per_host, " and ",
                         (n / ranks_per_host + 1) * ranks_per_host);
    }
    all.push_back(n <= ranks_per_host ? Cluster{1, n}
                                      : Cluster{n / ranks_per_host, ranks_per_host});
    if (all.size() > 1 && all[all.size() - 2].ranks() >= n) {
      throw config_error("numbers of ranks must rise, and ", n, " comes after ",
                         all[all.size() - 2].ranks());
    }
  }
  return all;
}

ScalePoint point_of(const Config& config, int64_t vocabulary, const Cluster& cluster,
                    const Machine& machine) {
  ScalePoint point;
  point.cluster = cluster;
  point.batch_tokens = config.train.batch_tokens;
  point.micro_batch = config.train.micro_batch;
  try {
    const Plan plan = make_plan(config, vocabulary, cluster, machine);
    const LayoutPlan* best = plan.best();
    if (best == nullptr) {
      point.refused = plan.layouts.empty() ? "no layout" : plan.layouts.front().refused;
      return point;
    }
    if (!best->fits) {
      point.refused = best->layout.name() + " " + best->why;
      return point;
    }
    point.layout = best->layout.name();
    point.seconds = best->seconds.total();
    point.waited = best->seconds.waited();
    point.tokens_per_second = best->tokens_per_second;
  } catch (const Error& error) {
    if (error.fault() != Fault::kConfig) throw;
    point.refused = error.what();
  }
  return point;
}

// The largest micro-batch, up to the configured one, of which so many ranks have whole ones; 0:
// none.
int64_t micro_batch_for(const Config& config, int ranks) {
  const int64_t sequences = config.train.batch_tokens / config.model.context;
  const int64_t pool = pool_sequences(config.model);
  for (int64_t m = config.train.micro_batch; m > 0; --m) {
    const bool pools = m % pool == 0 || (pool % m == 0 && ranks % (pool / m) == 0);
    if (pools && sequences % (m * ranks) == 0) return m;
  }
  return 0;
}

void set_efficiency(std::vector<ScalePoint>& curve, const char* name) {
  const ScalePoint& first = curve.front();
  if (!first.planned()) {
    throw config_error("no ", name, " scaling from ", counted(first.cluster.ranks(), "rank"), ": ",
                       first.refused);
  }
  const double each = first.tokens_per_second / first.cluster.ranks();
  for (ScalePoint& p : curve) p.efficiency = p.tokens_per_second / p.cluster.ranks() / each;
}

double log2_of(double value) { return std::log2(value); }

struct Series {
  const std::vector<ScalePoint>& points;
  int64_t number;
};

// A line and dots of what `value` says of each planned point.
template <class F>
void draw(Panel& panel, const Series& series, F&& value) {
  std::vector<PlotPoint> at;
  for (const ScalePoint& p : series.points) {
    if (p.planned()) at.push_back({log2_of(p.cluster.ranks()), value(p)});
  }
  panel.line(at, svg_series(series.number, "line"));
  panel.dots(at, svg_series(series.number, "dots"));
}

Axis ranks_axis(const std::vector<ScalePoint>& points) {
  const double first = log2_of(points.front().cluster.ranks());
  const double last = log2_of(points.back().cluster.ranks());
  return {"ranks, as a power of 2", first, std::max(last, first + 1)};
}

}  // namespace

ScaleCurves scale_curves(const Config& config, int64_t vocabulary, const std::vector<int>& ranks,
                         int ranks_per_host, const Machine& machine) {
  if (ranks.empty()) throw config_error("no numbers of ranks to scale over");
  ScaleCurves curves;
  const std::vector<Cluster> all = clusters(ranks, ranks_per_host);
  const int first = all.front().ranks();
  for (const Cluster& cluster : all) {
    Config weak = config;
    weak.train.batch_tokens = config.train.batch_tokens * cluster.ranks() / first;
    curves.weak.push_back(point_of(weak, vocabulary, cluster, machine));
    Config strong = config;
    strong.train.micro_batch = micro_batch_for(config, cluster.ranks());
    if (strong.train.micro_batch > 0) {
      curves.strong.push_back(point_of(strong, vocabulary, cluster, machine));
      continue;
    }
    ScalePoint none;
    none.cluster = cluster;
    none.batch_tokens = strong.train.batch_tokens;
    none.refused = join("the ", strong.train.batch_tokens / strong.model.context,
                        " sequences of a step do not divide among ", cluster.ranks(), " ranks");
    curves.strong.push_back(none);
  }
  set_efficiency(curves.weak, "weak");
  set_efficiency(curves.strong, "strong");
  return curves;
}

std::string draw_scale(const ScaleCurves& curves, const std::string& title) {
  constexpr double kWidth = 900, kHeight = 400;
  Svg svg(kWidth, kHeight, title);
  svg.add("text", {{"class", "ink title"}, {"x", "16"}, {"y", "24"}}, title);
  const Series weak{curves.weak, 0}, strong{curves.strong, 1};
  const Axis x = ranks_axis(curves.weak);
  Panel efficiency(svg, "efficiency", "tokens a second and rank, of the first point's",
                   {56, 74, 378, 240}, x, {"efficiency", 0, 1.1});
  const auto of_first = [](const ScalePoint& p) { return p.efficiency; };
  draw(efficiency, weak, of_first);
  draw(efficiency, strong, of_first);
  double least = 1e300, most = 0;
  for (const Series& series : {weak, strong}) {
    for (const ScalePoint& p : series.points) {
      if (!p.planned()) continue;
      least = std::min(least, p.tokens_per_second);
      most = std::max(most, p.tokens_per_second);
    }
  }
  Panel speed(svg, "speed", "tokens a second", {506, 74, 378, 240}, x,
              {"power of 10", std::log10(least) - 0.1, std::log10(most) + 0.2});
  const auto tokens = [](const ScalePoint& p) { return std::log10(p.tokens_per_second); };
  draw(speed, weak, tokens);
  draw(speed, strong, tokens);
  const double each = curves.weak.front().tokens_per_second / curves.weak.front().cluster.ranks();
  std::vector<PlotPoint> ideal;
  for (const ScalePoint& p : curves.weak) {
    const double n = p.cluster.ranks();
    ideal.push_back({log2_of(n), std::log10(each * n)});
  }
  speed.line(ideal, "rim dashed");
  legend(svg, {56, kHeight - 24},
         {{"line", svg_series(0, "line"), "weak: as many tokens a rank"},
          {"line", svg_series(1, "line"), "strong: as many tokens a step"},
          {"line", "rim dashed", "ideal"}});
  return svg.text();
}

}  // namespace anabranch
