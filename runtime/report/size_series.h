// Points of a sweep that differ in size alone, and the scaling law through each such series.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/report.h"
#include "runtime/report/scaling_law.h"

namespace anabranch {

enum class LawSize : uint8_t { kParameters, kFlops };  // non-embedding ones; of a whole run

struct SizeSeries {
  std::string label;           // what its points share: "cmollm linear 2"
  std::string over;            // in what they differ: "size", "size, N"
  std::vector<size_t> points;  // of the report
  std::vector<SizedLoss> runs;
  ScalingLaw law;
};

double size_of(const RecordedPoint& point, LawSize by);

// Series over size and depth, and over these and N; those with two sizes or more among their
// points, whether or not their runs are there.
std::vector<SizeSeries> size_series(const SweepReport& report, LawSize by = LawSize::kParameters);

}  // namespace anabranch
