// The lines of metrics.jsonl as reports.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/reports.h"

namespace anabranch {

// Tells `sink` what a line says; nothing of a model's own figures (type "mixture"). A number that
// JSON has no word for (null) is not-a-number. Of what is spread over ranks a line has one
// statistic each, as MetricsSink writes it.
//
//   line         "{"type": "step", ...}", without its line feed
//   total_steps  of the run; 0: unknown
//
// Returns false if the line is none that a run writes: no JSON, another type, a field that is
// missing or of the wrong kind.
bool read_report(const std::string& line, int64_t total_steps, ReportSink& sink);

}  // namespace anabranch
