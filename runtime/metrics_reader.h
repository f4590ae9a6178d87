// The lines of metrics.jsonl as reports.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/reports.h"

namespace anabranch {

// A model's own figures at one step, by name as in metrics.jsonl: rows by layer, columns by stream
// or expert; one of each where a figure has none. Not-a-number where there is no figure.
struct MixtureReport {
  int64_t step = 0;
  std::map<std::string, std::vector<std::vector<double>>> figures;
};

// Tells `sink` what a line says, and `mixture` what one says of a model's own figures. A number
// that JSON has no word for (null) is not-a-number. Of what is spread over ranks a line has one
// statistic each, as MetricsSink writes it.
//
//   line         "{"type": "step", ...}", without its line feed
//   total_steps  of the run; 0: unknown
//   mixture      may be empty
//
// Returns false if the line is none that a run writes: no JSON, another type, a field that is
// missing or of the wrong kind.
bool read_report(const std::string& line, int64_t total_steps, ReportSink& sink,
                 const std::function<void(MixtureReport)>& mixture = {});

}  // namespace anabranch
