#include "runtime/report/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"
#include "runtime/sweep/run_state.h"

namespace anabranch {

namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double& figure_of(RunResult& result, ReportFigure figure) {
  return result.figures[static_cast<size_t>(figure)];
}

double median_speed(const std::vector<StepReport>& steps) {
  std::vector<double> speeds;
  for (const StepReport& step : steps) {
    if (std::isfinite(step.tokens_per_second)) speeds.push_back(step.tokens_per_second);
  }
  if (speeds.empty()) return kNone;
  std::ranges::sort(speeds);
  const size_t middle = speeds.size() / 2;
  return speeds.size() % 2 != 0 ? speeds[middle] : (speeds[middle - 1] + speeds[middle]) / 2;
}

void set_figures(RunResult& result, const RecordedPoint& point, const SourceMean& last) {
  figure_of(result, ReportFigure::kValidationLoss) = last.loss;
  figure_of(result, ReportFigure::kPerplexity) = std::exp(last.loss);
  figure_of(result, ReportFigure::kBitsPerByte) = last.bits_per_byte;
  if (const auto ahead = result.series.last_eval(point.steps, kForever, true)) {
    figure_of(result, ReportFigure::kLookingAhead) = ahead->loss;
  }
  if (result.series.steps.empty()) return;
  const auto tokens = static_cast<double>(result.series.steps.back().tokens);
  figure_of(result, ReportFigure::kTokensPerSecond) = median_speed(result.series.steps);
  figure_of(result, ReportFigure::kFlops) = tokens * point.cost.flops_per_token();
  figure_of(result, ReportFigure::kSeconds) = seconds_by_step(result.series.steps).back();
}

// Why a run that has no last evaluation has none.
std::string unfinished(const RunState& state, int64_t steps) {
  std::string why = join(state.phase == RunPhase::kDone ? "no validation loss at its end"
                                                        : std::string(word_of(state.phase)));
  if (state.step > 0) why += join(" at step ", state.step, " of ", steps);
  if (state.phase == RunPhase::kFailed) why += join(", exit code ", state.exit_code);
  if (!state.why.empty()) why += ": " + state.why;
  if (!state.last_line.empty()) why += "; " + state.last_line;
  return why;
}

RunResult result_of(const std::string& folder, const SweepRun& run, const RecordedPoint& point) {
  RunResult result{.run = run, .state = "", .left_out = "", .figures = {}, .series = {}};
  result.figures.fill(kNone);
  const std::filesystem::path directory = std::filesystem::path(folder) / run.id;
  const RunState state = run_state(directory, point.steps);
  result.state = word_of(state.phase);
  const std::filesystem::path metrics = directory / "metrics.jsonl";
  if (std::filesystem::is_regular_file(metrics)) {
    result.series = read_series(metrics.string(), point.steps);
  }
  const std::optional<SourceMean> last = result.series.last_eval(point.steps);
  if (!last) {
    result.left_out = unfinished(state, point.steps);
    if (result.series.last_eval(point.steps, kForever, true)) {
      result.left_out += "; the loss it has looks ahead";
    }
  } else if (!std::isfinite(last->loss)) {
    result.left_out = "its last validation loss is not a number";
  } else {
    set_figures(result, point, *last);
  }
  return result;
}

std::vector<PointResult> points_of(const SweepRecord& record, const std::vector<RunResult>& runs) {
  std::vector<PointResult> points(record.points.size());
  for (size_t r = 0; r < runs.size(); ++r) {
    PointResult& point = points[runs[r].run.point];
    ++point.planned;
    if (runs[r].counts()) point.runs.push_back(r);
  }
  for (PointResult& point : points) {
    for (size_t f = 0; f < kReportFigures.size(); ++f) {
      std::vector<double> values;
      for (const size_t r : point.runs) {
        if (std::isfinite(runs[r].figures[f])) values.push_back(runs[r].figures[f]);
      }
      point.figures[f] = sample_of(values);
    }
  }
  return points;
}

// Compares by common seeds; nothing if there are none.
void compare(SweepReport& report, size_t point, size_t baseline, const std::string& why) {
  std::vector<double> differences;
  for (const size_t a : report.points[point].runs) {
    for (const size_t b : report.points[baseline].runs) {
      if (report.runs[a].run.seed != report.runs[b].run.seed) continue;
      differences.push_back(report.runs[a].at(ReportFigure::kValidationLoss) -
                            report.runs[b].at(ReportFigure::kValidationLoss));
    }
  }
  if (differences.empty()) return;
  const Sample sample = sample_of(differences);
  report.comparisons.push_back(
      {point, baseline, why, sample, mean_interval(sample), seeds_needed(sample)});
}

void compare_by_default(SweepReport& report) {
  const auto& points = report.record.points;
  const std::vector<BasePoint> bases = base_points(report.axes, {"dense", "base"});
  for (size_t p = 0; p < points.size(); ++p) {
    for (size_t control = 0; control < points.size(); ++control) {
      if (points[control].matches == points[p].id) compare(report, p, control, "matched compute");
    }
    for (const BasePoint& base : bases) {
      if (!is_based_on(report.axes, p, base)) continue;
      compare(report, p, base.point, report.axes.values[base.point][base.axis]);
    }
  }
}

void compare_with(SweepReport& report, const std::string& baseline) {
  const auto& points = report.record.points;
  const auto named = std::ranges::find(points, baseline, &RecordedPoint::id);
  if (named != points.end()) {
    const auto base = static_cast<size_t>(named - points.begin());
    for (size_t p = 0; p < points.size(); ++p) {
      if (p != base) compare(report, p, base, "chosen");
    }
    return;
  }
  const std::vector<BasePoint> bases = base_points(report.axes, {baseline});
  if (bases.empty()) {
    std::vector<std::string> known;
    known.reserve(2 * points.size());
    for (const RecordedPoint& point : points) known.push_back(point.id);
    for (const auto& values : report.axes.values) known.push_back(values[0]);
    throw usage_error("--baseline ", quote(baseline), ": no point, family or value of ",
                      report.record.name, nearest_or_known(baseline, known, "", ""));
  }
  for (size_t p = 0; p < points.size(); ++p) {
    for (const BasePoint& base : bases) {
      if (is_based_on(report.axes, p, base)) compare(report, p, base.point, "chosen");
    }
  }
}

}  // namespace

SweepReport make_report(const std::string& folder, const std::string& baseline) {
  SweepReport report;
  report.record = read_record(folder);
  report.axes = sweep_axes(report.record);
  for (const SweepRun& run : report.record.runs) {
    report.runs.push_back(result_of(folder, run, report.record.points[run.point]));
  }
  report.points = points_of(report.record, report.runs);
  if (baseline.empty()) {
    compare_by_default(report);
  } else {
    compare_with(report, baseline);
  }
  return report;
}

}  // namespace anabranch
