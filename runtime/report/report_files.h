// A sweep's report for programs.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/report.h"
#include "runtime/report/size_series.h"

namespace anabranch {

// A row for each run and for each point, told apart by the column `row`; a figure of a point is its
// mean, with its deviation in the column NAME_sd. Empty: there is none. Quoted as RFC 4180 says.
std::string report_csv(const SweepReport& report);

// All of it, with null for what is not there.
std::string report_json(const SweepReport& report, const std::vector<SizeSeries>& series);

}  // namespace anabranch
