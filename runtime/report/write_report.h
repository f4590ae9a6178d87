// A sweep's report as files.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/report_tables.h"

namespace anabranch {

// Writes report.md, report.csv, report.json and report.html to a folder, which is made if need be,
// and with `figures` the papers' figures: into the page, and each to figures/NAME.svg, where *.svg
// of an earlier report are removed first. Each file is replaced in one go. Throws io_error.
void write_report(const SweepReport& report, const ReportWish& wish,
                  const std::vector<SizeSeries>& series, const std::string& folder, bool figures);

}  // namespace anabranch
