#include "runtime/report/report_plots.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

constexpr size_t kMostLines = 8;  // of a plot, beside its baselines

// A run's part of a curve.
struct CurvePart {
  double tokens = 0, seconds = 0, loss = 0;
  int64_t count = 0;
};

std::vector<CurvePart> parts_of(const RunSeries& series, int64_t steps) {
  std::vector<CurvePart> parts(kCurveParts);
  const std::vector<double> seconds = seconds_by_step(series.steps);
  for (size_t i = 0; i < series.steps.size(); ++i) {
    const StepReport& step = series.steps[i];
    if (!std::isfinite(step.loss)) continue;
    const int64_t part = std::clamp<int64_t>(
        (step.step - 1) * kCurveParts / std::max<int64_t>(steps, 1), 0, kCurveParts - 1);
    CurvePart& p = parts[static_cast<size_t>(part)];
    p.tokens = static_cast<double>(step.tokens);
    p.seconds = seconds[i];
    p.loss += step.loss;
    ++p.count;
  }
  return parts;
}

// A group of points that are drawn together.
struct CurveGroup {
  std::string title;
  std::vector<size_t> points;
  std::vector<std::string> names;
};

std::vector<CurveGroup> groups_of(const SweepReport& report, const PivotWish& wish) {
  std::vector<CurveGroup> groups;
  for (const Pivot& pivot : make_pivots(report.record, report.axes, wish)) {
    for (const Pivot::Row& row : pivot.rows) {
      const bool is_new =
          !pivot.axis.empty() || groups.empty() || groups.back().points.size() >= kMostLines;
      const std::string place = pivot.title.empty() ? "" : ", " + pivot.title;
      if (is_new) groups.push_back({pivot.axis.empty() ? "points" : row.label + place, {}, {}});
      for (size_t c = 0; c < row.cells.size(); ++c) {
        for (const size_t p : row.cells[c]) {
          groups.back().points.push_back(p);
          groups.back().names.push_back(pivot.axis.empty() ? row.label
                                                           : pivot.axis + " " + pivot.columns[c]);
        }
      }
    }
  }
  return groups;
}

// Adds the baselines that have not already a line, so that every plot can be read alone.
void add_baselines(const SweepReport& report, CurveGroup& group) {
  const std::set<size_t> own(group.points.begin(), group.points.end());
  std::set<size_t> added;
  for (const Comparison& c : report.comparisons) {
    const bool of_group = own.contains(c.point) && !own.contains(c.baseline);
    if (!of_group || c.why == "matched compute" || !added.insert(c.baseline).second) continue;
    group.points.push_back(c.baseline);
    group.names.push_back(report.record.points[c.baseline].id);
  }
}

// The loss after the first tenth of the curve that is highest there.
double after_a_tenth(const std::vector<LossCurve>& curves) {
  double highest = -std::numeric_limits<double>::infinity();
  for (const LossCurve& curve : curves) {
    if (!curve.high.empty()) highest = std::max(highest, curve.high[curve.high.size() / 10]);
  }
  return highest;
}

struct Against {
  const char *name, *label;
  std::vector<double> LossCurve::*x;
};

constexpr std::array kAgainst{Against{"tokens", "tokens", &LossCurve::tokens},
                              Against{"flops", "FLOPs", &LossCurve::flops},
                              Against{"time", "seconds of training", &LossCurve::seconds}};

void draw_group(const SweepReport& report, const CurveGroup& group, int64_t number,
                std::vector<NamedDrawing>& drawings) {
  std::vector<LossCurve> curves;
  for (const size_t p : group.points) curves.push_back(loss_curve(report, p));
  const bool empty = std::ranges::all_of(curves, [](const LossCurve& c) { return c.mean.empty(); });
  if (empty) return;
  for (const Against& against : kAgainst) {
    LinePlot plot{join("loss-", number, "-", against.name),
                  group.title,
                  against.label,
                  "training loss",
                  {},
                  after_a_tenth(curves)};
    for (size_t i = 0; i < curves.size(); ++i) {
      plot.series.push_back({.name = group.names[i],
                             .x = curves[i].*against.x,
                             .y = curves[i].mean,
                             .low = curves[i].low,
                             .high = curves[i].high});
    }
    drawings.push_back({plot.id, draw_lines(plot)});
  }
}

}  // namespace

LossCurve loss_curve(const SweepReport& report, size_t point) {
  LossCurve curve;
  std::vector<std::vector<CurvePart>> runs;
  const RecordedPoint& recorded = report.record.points[point];
  for (const size_t r : report.points[point].runs) {
    runs.push_back(parts_of(report.runs[r].series, recorded.steps));
  }
  for (size_t i = 0; !runs.empty() && i < kCurveParts; ++i) {
    double tokens = 0, seconds = 0, sum = 0, low = 1e300, high = -1e300;
    bool all = true;
    for (const std::vector<CurvePart>& run : runs) {
      all = all && run[i].count > 0;
      if (!all) break;
      const double loss = run[i].loss / static_cast<double>(run[i].count);
      tokens += run[i].tokens;
      seconds += run[i].seconds;
      sum += loss;
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
    if (!all) continue;
    const auto n = static_cast<double>(runs.size());
    curve.tokens.push_back(tokens / n);
    curve.flops.push_back(tokens / n * recorded.cost.flops_per_token());
    curve.seconds.push_back(seconds / n);
    curve.mean.push_back(sum / n);
    curve.low.push_back(low);
    curve.high.push_back(high);
  }
  return curve;
}

std::vector<NamedDrawing> curve_plots(const SweepReport& report, const PivotWish& wish) {
  std::vector<NamedDrawing> drawings;
  int64_t number = 0;
  for (CurveGroup& group : groups_of(report, wish)) {
    add_baselines(report, group);
    draw_group(report, group, ++number, drawings);
  }
  return drawings;
}

std::vector<NamedDrawing> law_plots(const std::vector<SizeSeries>& series, LawSize by) {
  std::vector<NamedDrawing> drawings;
  int64_t number = 0;
  for (const SizeSeries& s : series) {
    ++number;
    if (!s.law.refused.empty()) continue;
    const std::string what = by == LawSize::kParameters ? "non-embedding parameters" : "FLOPs";
    LinePlot plot{join("law-", number), s.label, "log10 of " + what, "validation loss", {}};
    LineSeries runs{
        .name = "runs", .x = {}, .y = {}, .has_dots = true, .has_line = false, .colour = 1};
    double low = 1e300, high = 0;
    for (const SizedLoss& run : s.runs) {
      runs.x.push_back(std::log10(run.size));
      runs.y.push_back(run.loss);
      low = std::min(low, runs.x.back());
      high = std::max(high, runs.x.back());
    }
    LineSeries law{
        .name = join("alpha ", number_text(std::round(1e4 * s.law.exponent.value) / 1e4)),
        .x = {},
        .y = {},
        .colour = 0};
    constexpr int kSteps = 60;
    for (int i = 0; i <= kSteps; ++i) {
      law.x.push_back(low + (high - low) * i / kSteps);
      law.y.push_back(s.law.at(std::pow(10, law.x.back())));
    }
    plot.series = {law, runs};
    drawings.push_back({plot.id, draw_lines(plot)});
  }
  return drawings;
}

std::vector<NamedDrawing> column_plots(const SweepReport& report, const PivotWish& wish) {
  std::vector<NamedDrawing> drawings;
  int64_t number = 0;
  for (const Pivot& pivot : make_pivots(report.record, report.axes, wish)) {
    const int axis = pivot.axis.empty() ? -1 : report.axes.find(pivot.axis);
    if (axis < 0 || !report.axes.is_numeric(static_cast<size_t>(axis))) continue;
    const std::string title =
        "loss against " + pivot.axis + (pivot.title.empty() ? "" : ", " + pivot.title);
    LinePlot plot{join("loss-against-", file_word(pivot.axis), "-", ++number),
                  title,
                  pivot.axis,
                  "validation loss",
                  {}};
    for (const Pivot::Row& row : pivot.rows) {
      LineSeries series{.name = row.label, .x = {}, .y = {}, .has_dots = true};
      for (size_t c = 0; c < row.cells.size(); ++c) {
        double x = 0;
        if (!parse_number(pivot.columns[c], x)) continue;
        for (const size_t p : row.cells[c]) {
          double low = 1e300, high = -1e300;
          for (const size_t r : report.points[p].runs) {
            low = std::min(low, report.runs[r].at(ReportFigure::kValidationLoss));
            high = std::max(high, report.runs[r].at(ReportFigure::kValidationLoss));
          }
          if (report.points[p].runs.empty()) continue;
          series.x.push_back(x);
          series.y.push_back(report.points[p].at(ReportFigure::kValidationLoss).mean);
          series.low.push_back(low);
          series.high.push_back(high);
        }
      }
      if (!series.x.empty()) plot.series.push_back(std::move(series));
    }
    if (!plot.series.empty()) drawings.push_back({plot.id, draw_lines(plot)});
  }
  return drawings;
}

}  // namespace anabranch
