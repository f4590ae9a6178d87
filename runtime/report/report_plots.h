// Plots that every report has: losses while training, and against size.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/line_plot.h"
#include "runtime/report/pivot.h"
#include "runtime/report/report.h"
#include "runtime/report/size_series.h"

namespace anabranch {

// A point's training loss over its complete runs: means over at most kCurveParts equal parts of the
// steps, first of each run, then over runs; the lowest and highest run beside them. A part that a
// run has no finite loss of is left out.
struct LossCurve {
  std::vector<double> tokens, flops, seconds;  // at the end of a part, mean over runs
  std::vector<double> mean, low, high;
};

inline constexpr int64_t kCurveParts = 100;

LossCurve loss_curve(const SweepReport& report, size_t point);

// Loss against tokens, FLOPs and time: three plots for each row of the pivots, each with the points
// that the row is measured against. The first tenth of a run may leave the plot at the top.
std::vector<NamedDrawing> curve_plots(const SweepReport& report, const PivotWish& wish);

// Losses of runs against size, with the law through them.
std::vector<NamedDrawing> law_plots(const std::vector<SizeSeries>& series, LawSize by);

// Validation loss against what the columns of the pivots are, where that is a number: a line for
// each row, mean and range over runs.
std::vector<NamedDrawing> column_plots(const SweepReport& report, const PivotWish& wish);

}  // namespace anabranch
