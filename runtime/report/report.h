// What the runs of a sweep came to: figures of runs and points, and differences between points.
// Reads what lies in a sweep's directory; runs that are not complete are listed, never averaged.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/report/axes.h"
#include "runtime/report/statistics.h"
#include "runtime/run_series.h"
#include "runtime/sweep/record.h"

namespace anabranch {

// Figures of a complete run, each a column of tables and files.
enum class ReportFigure : uint8_t {
  kValidationLoss,
  kPerplexity,
  kBitsPerByte,
  kLookingAhead,
  kTokensPerSecond,
  kFlops,
  kSeconds
};

struct ReportFigureSpec {
  ReportFigure id;
  std::string_view name;   // in files
  std::string_view title;  // in tables
  int digits;              // after the point; -1: in engineering units
};

inline constexpr std::array kReportFigures{
    ReportFigureSpec{ReportFigure::kValidationLoss, "validation_loss", "validation loss", 4},
    ReportFigureSpec{ReportFigure::kPerplexity, "validation_perplexity", "perplexity", 3},
    ReportFigureSpec{ReportFigure::kBitsPerByte, "validation_bpb", "bits/byte", 4},
    ReportFigureSpec{ReportFigure::kLookingAhead, "validation_loss_looking_ahead",
                     "loss looking ahead (no headline)", 4},
    ReportFigureSpec{ReportFigure::kTokensPerSecond, "tokens_per_second", "tokens/s", -1},
    ReportFigureSpec{ReportFigure::kFlops, "flops", "FLOPs", -1},
    ReportFigureSpec{ReportFigure::kSeconds, "seconds", "training time", -1},
};

template <class T>
using ByFigure = std::array<T, kReportFigures.size()>;

template <class T>
const T& figure_in(const ByFigure<T>& all, ReportFigure figure) {
  return all[static_cast<size_t>(figure)];
}

struct RunResult {
  SweepRun run;
  std::string state;         // as `sweep status` calls it: done, failed, waiting, ..
  std::string left_out;      // why it is in no mean; empty: it is in
  ByFigure<double> figures;  // of one that is in; not-a-number: it has none
  RunSeries series;          // empty if there is none

  [[nodiscard]] bool counts() const { return left_out.empty(); }

  [[nodiscard]] double at(ReportFigure figure) const { return figure_in(figures, figure); }
};

struct PointResult {
  std::vector<size_t> runs;  // of the report, those that count
  int64_t planned = 0;       // all of its runs
  ByFigure<Sample> figures;

  [[nodiscard]] const Sample& at(ReportFigure figure) const { return figure_in(figures, figure); }
};

// Validation loss of a point less that of its baseline, by common seeds.
struct Comparison {
  size_t point = 0, baseline = 0;
  std::string why;  // "matched compute", "dense", ..
  Sample differences;
  Interval interval;   // 95%, of this one comparison
  int64_t needed = 0;  // seeds_needed()
};

struct SweepReport {
  SweepRecord record;
  SweepAxes axes;
  std::vector<RunResult> runs;      // as the record's
  std::vector<PointResult> points;  // as the record's
  std::vector<Comparison> comparisons;
};

// Reads and sums up. A run counts if it has a headline evaluation of a finite loss at the point's
// last step or later; over several sources of validation it is their mean.
//
//   folder    a sweep's directory
//   baseline  a point's id, or a family or value that some points have; empty: for each point its
//             control of equal multiply-adds and the points called dense or base that agree with
//             it. Throws Error (usage) if there is none of that name.
//
// Perplexity is exp(loss); tokens a second are the median over logged steps; FLOPs are those of
// forward and backward by the point's multiply-adds; the time is tokens over their speed between
// logged steps, without validation and saves. Throws data_error without a record.
SweepReport make_report(const std::string& folder, const std::string& baseline = "");

}  // namespace anabranch
