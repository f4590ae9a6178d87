#include "runtime/report/report_tables.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/error.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

constexpr const char* kSpread =
    "\u00b1 is the standard deviation over seeds, with n - 1; without it there is one seed.";

std::string seeds_of(const PointResult& point) {
  return join(point.runs.size(), " of ", point.planned);
}

std::string figure_text(const Sample& sample, const ReportFigureSpec& spec) {
  if (spec.id == ReportFigure::kSeconds) return duration_text(sample.mean);
  return spec.digits < 0 ? unit_text(sample.mean) : sample_text(sample, spec.digits);
}

bool any_has(const SweepReport& report, ReportFigure figure) {
  return std::ranges::any_of(report.points,
                             [figure](const PointResult& p) { return p.at(figure).count > 0; });
}

// The best mean of a column; none where it holds fewer than two.
std::optional<double> best_of(const SweepReport& report, const Pivot& pivot, size_t column,
                              ReportFigure figure) {
  std::optional<double> best;
  int64_t count = 0;
  for (const Pivot::Row& row : pivot.rows) {
    for (const size_t p : row.cells[column]) {
      const double mean = report.points[p].at(figure).mean;
      if (std::isnan(mean)) continue;
      best = std::min(best.value_or(mean), mean);
      ++count;
    }
  }
  return count > 1 ? best : std::nullopt;
}

ReportCell pivot_cell(const SweepReport& report, const std::vector<size_t>& points,
                      const ReportFigureSpec& spec, std::optional<double> best) {
  std::string text;
  bool is_best = false;
  for (const size_t p : points) {
    const PointResult& point = report.points[p];
    text += text.empty() ? "" : " / ";
    text += sample_text(point.at(spec.id), spec.digits);
    if (std::ssize(point.runs) < point.planned) text += join(" (", seeds_of(point), ")");
    if (spec.id == ReportFigure::kValidationLoss) {
      text += join(" \u00b7 ", unit_text(report.record.points[p].cost.macs()));
    }
    is_best = is_best || (best && point.at(spec.id).mean == *best);
  }
  return {text, is_best};
}

ReportTable pivot_table(const SweepReport& report, const Pivot& pivot,
                        const ReportFigureSpec& spec) {
  ReportTable table{join(spec.title, pivot.axis.empty() ? "" : " by " + pivot.axis,
                         pivot.title.empty() ? "" : ": " + pivot.title),
                    {},
                    {"variant"},
                    {},
                    1};
  table.notes.emplace_back(
      spec.id == ReportFigure::kValidationLoss
          ? "Nats per token \u00b7 multiply-adds of a token. The lowest mean of a "
            "column stands out. "
          : "The lowest mean of a column stands out. ");
  table.notes.back() += kSpread;
  std::vector<std::optional<double>> best;
  for (size_t c = 0; c < pivot.columns.size(); ++c) {
    const std::string& value = pivot.columns[c];
    table.header.push_back(pivot.axis.empty() ? std::string(spec.title)
                           : value.empty()    ? "no " + pivot.axis
                                              : pivot.axis + " " + value);
    best.push_back(best_of(report, pivot, c, spec.id));
  }
  for (const Pivot::Row& row : pivot.rows) {
    std::vector<ReportCell>& cells = table.rows.emplace_back();
    cells.emplace_back(row.label);
    for (size_t c = 0; c < row.cells.size(); ++c) {
      cells.push_back(pivot_cell(report, row.cells[c], spec, best[c]));
    }
  }
  return table;
}

ReportTable points_table(const SweepReport& report) {
  ReportTable table{"points", {}, {"point", "family"}, {}, 2};
  table.notes.emplace_back(kSpread);
  table.notes.emplace_back(
      "Multiply-adds are of a forward, of a token; FLOPs of forward and backward, of a run. Time "
      "is "
      "that of training steps, without validation and saves.");
  for (const char* name : {"parameters", "no embedding", "MACs/token", "tokens", "seeds"}) {
    table.header.emplace_back(name);
  }
  std::vector<ReportFigureSpec> shown;
  for (const ReportFigureSpec& spec : kReportFigures) {
    if (any_has(report, spec.id)) shown.push_back(spec);
  }
  for (const ReportFigureSpec& spec : shown) table.header.emplace_back(spec.title);
  for (size_t p = 0; p < report.points.size(); ++p) {
    const RecordedPoint& point = report.record.points[p];
    std::vector<ReportCell>& row = table.rows.emplace_back();
    row.emplace_back(point.id);
    row.emplace_back(point.family);
    row.emplace_back(unit_text(static_cast<double>(point.cost.parameters)));
    row.emplace_back(unit_text(static_cast<double>(point.cost.non_embedding_parameters)));
    row.emplace_back(unit_text(point.cost.macs()));
    row.emplace_back(unit_text(static_cast<double>(point.tokens())));
    row.emplace_back(seeds_of(report.points[p]));
    for (const ReportFigureSpec& spec : shown) {
      row.emplace_back(figure_text(report.points[p].at(spec.id), spec));
    }
  }
  return table;
}

ReportTable differences_table(const SweepReport& report) {
  ReportTable table{
      "differences",
      {"Validation loss of a point less its baseline's, seed by seed; below 0 the "
       "point is better.",
       "The interval is Student's t of the differences, 95%, of each comparison alone; "
       "one seed has none.",
       "Seeds needed: the smallest n with n >= ((t(0.975, n-1) + t(0.8, n-1)) sd / "
       "|mean|)^2, for 80% power at 5% if the difference is what it seems."},
      {"point", "baseline", "why", "MACs", "seeds", "difference", "95% interval", "seeds needed"},
      {},
      3};
  for (const Comparison& c : report.comparisons) {
    const RecordedPoint& point = report.record.points[c.point];
    const RecordedPoint& baseline = report.record.points[c.baseline];
    table.rows.push_back({point.id, baseline.id, c.why,
                          join(fixed_text(point.cost.macs() / baseline.cost.macs(), 3), "x"),
                          std::to_string(c.differences.count), sample_text(c.differences, 4),
                          interval_text(c.interval, 4), seeds_text(c.needed)});
  }
  if (table.rows.empty()) {
    table.notes = {
        "No point has a baseline with a common seed: the defaults are points called "
        "dense or base, and controls of equal multiply-adds; --baseline names another."};
  }
  return table;
}

ReportTable laws_table(const std::vector<SizeSeries>& series, LawSize by) {
  const std::string size =
      by == LawSize::kParameters ? "non-embedding parameters" : "FLOPs of a run";
  ReportTable table{
      "scaling laws",
      {"L(N) = E + A N^-alpha, N the " + size +
           "; least squares over runs, 95% intervals by profile likelihood.",
       "Two sizes have no E; an open side is one that the runs leave open, and without "
       "an interval there are no more runs than constants."},
      {"series", "over", "runs", "sizes", "alpha", "interval", "E", "interval", "A"},
      {},
      2};
  for (const SizeSeries& s : series) {
    const ScalingLaw& law = s.law;
    std::vector<ReportCell> row{s.label, s.over, std::to_string(law.runs),
                                std::to_string(law.sizes)};
    if (!law.refused.empty()) {
      row.insert(row.end(), {join("none: ", law.refused), std::string("-"), std::string("-"),
                             std::string("-"), std::string("-")});
    } else {
      row.insert(row.end(),
                 {fixed_text(law.exponent.value, 4), interval_text(law.exponent.interval, 4),
                  law.has_floor ? fixed_text(law.floor.value, 4) : "-",
                  interval_text(law.floor.interval, 4), unit_text(law.scale())});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

ReportTable left_out_table(const SweepReport& report) {
  ReportTable table{
      "runs left out", {"In no mean, difference or law above."}, {"run", "why"}, {}, 2};
  for (const RunResult& run : report.runs) {
    if (!run.counts()) table.rows.push_back({run.run.id, run.left_out});
  }
  return table;
}

}  // namespace

std::vector<std::string> report_head(const SweepReport& report) {
  const auto count = std::ranges::count_if(report.runs, &RunResult::counts);
  const auto all = std::ssize(report.runs);
  std::vector<std::string> head{
      join(counted(std::ssize(report.points), "point"), ", ", counted(all, "run"), ", of which ",
           count, " count",
           all == count ? "." : join("; ", all - count, " are left out and listed.")),
      join("From ", report.record.file, report.record.scale == SweepScale::kTiny ? ", tiny" : "",
           "; sizes counted for a vocabulary of ", report.record.vocabulary, ".")};
  int64_t odd = 0;
  for (const RunResult& run : report.runs) odd += run.series.odd_lines;
  if (odd > 0)
    head.push_back(join("Skipped ", counted(odd, "line"), " of metrics.jsonl that no run writes."));
  for (const std::string& set : report.record.sets) head.push_back("Set over every point: " + set);
  return head;
}

std::vector<ReportTable> report_tables(const SweepReport& report, const ReportWish& wish,
                                       const std::vector<SizeSeries>& series) {
  std::vector<ReportTable> tables;
  const std::vector<Pivot> pivots = make_pivots(report.record, report.axes, wish.pivot);
  for (const ReportFigure figure : {ReportFigure::kValidationLoss, ReportFigure::kPerplexity}) {
    if (!any_has(report, figure)) continue;
    for (const Pivot& pivot : pivots) {
      tables.push_back(pivot_table(report, pivot, kReportFigures[static_cast<size_t>(figure)]));
    }
  }
  tables.push_back(points_table(report));
  tables.push_back(differences_table(report));
  if (!series.empty()) tables.push_back(laws_table(series, wish.law));
  ReportTable left_out = left_out_table(report);
  if (!left_out.rows.empty()) tables.push_back(std::move(left_out));
  return tables;
}

std::string report_markdown(const SweepReport& report, const ReportWish& wish,
                            const std::vector<SizeSeries>& series) {
  std::string text = join("# ", report.record.name, "\n\n");
  for (const std::string& line : report_head(report)) text += line + "\n";
  text += "\n";
  for (const ReportTable& table : report_tables(report, wish, series)) text += markdown(table);
  text.pop_back();
  return text;
}

}  // namespace anabranch
