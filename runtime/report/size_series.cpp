#include "runtime/report/size_series.h"

#include <algorithm>
#include <set>

#include "runtime/report/pivot.h"

namespace anabranch {

namespace {

// The axes of the sweep among some names.
std::vector<size_t> among(const SweepAxes& axes, const std::vector<std::string>& names) {
  std::vector<size_t> found;
  for (const std::string& name : names) {
    if (axes.find(name) >= 0) found.push_back(static_cast<size_t>(axes.find(name)));
  }
  return found;
}

std::string names_of(const SweepAxes& axes, const std::vector<size_t>& of) {
  std::string text;
  for (const size_t a : of) text += (text.empty() ? "" : ", ") + axes.names[a];
  return text;
}

void add_series(const SweepReport& report, const std::vector<size_t>& varied, LawSize by,
                std::vector<SizeSeries>& all) {
  const SweepAxes& axes = report.axes;
  std::vector<size_t> shared;
  for (size_t a = 0; a < axes.names.size(); ++a) {
    if (std::ranges::count(varied, a) == 0) shared.push_back(a);
  }
  const auto first = std::ssize(all);
  for (size_t p = 0; p < report.points.size(); ++p) {
    const std::string label = label_of(axes, p, shared);
    auto series = std::find_if(all.begin() + first, all.end(),
                               [&label](const SizeSeries& s) { return s.label == label; });
    if (series == all.end()) {
      series = all.insert(series, {label, names_of(axes, varied), {}, {}, {}});
    }
    series->points.push_back(p);
    for (const size_t r : report.points[p].runs) {
      series->runs.push_back(
          {size_of(report.record.points[p], by), report.runs[r].at(ReportFigure::kValidationLoss)});
    }
  }
}

bool has_sizes(const SweepReport& report, const SizeSeries& series, LawSize by) {
  std::set<double> sizes;
  for (const size_t p : series.points) sizes.insert(size_of(report.record.points[p], by));
  return sizes.size() > 1;
}

}  // namespace

double size_of(const RecordedPoint& point, LawSize by) {
  if (by == LawSize::kParameters) return static_cast<double>(point.cost.non_embedding_parameters);
  return point.cost.flops_per_token() * static_cast<double>(point.tokens());
}

std::vector<SizeSeries> size_series(const SweepReport& report, LawSize by) {
  std::vector<SizeSeries> all;
  const std::vector<size_t> sizes = among(report.axes, {"size", "depth"});
  const std::vector<size_t> both = among(report.axes, {"size", "depth", "N"});
  if (!sizes.empty()) add_series(report, sizes, by, all);
  if (both.size() > sizes.size()) add_series(report, both, by, all);
  std::vector<SizeSeries> kept;
  for (SizeSeries& series : all) {
    const bool is_known = std::ranges::any_of(
        kept, [&series](const SizeSeries& other) { return other.points == series.points; });
    if (is_known || !has_sizes(report, series, by)) continue;
    series.law = fit_scaling_law(series.runs);
    kept.push_back(std::move(series));
  }
  return kept;
}

}  // namespace anabranch
