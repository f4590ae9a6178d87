// A sweep's report as tables, for Markdown and HTML alike.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/pivot.h"
#include "runtime/report/report.h"
#include "runtime/report/report_table.h"
#include "runtime/report/size_series.h"

namespace anabranch {

struct ReportWish {
  PivotWish pivot;
  LawSize law = LawSize::kParameters;
};

// What the sweep is and how far it came, as sentences.
std::vector<std::string> report_head(const SweepReport& report);

// The papers' shapes first, then all points, differences, scaling laws, and the runs left out. What
// has no rows is not there, but where points have no baseline a note says so.
std::vector<ReportTable> report_tables(const SweepReport& report, const ReportWish& wish,
                                       const std::vector<SizeSeries>& series);

// All of it: what `sweep report` prints.
std::string report_markdown(const SweepReport& report, const ReportWish& wish,
                            const std::vector<SizeSeries>& series);

}  // namespace anabranch
