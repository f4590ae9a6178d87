// A run's metrics.jsonl as series: what reports, figures and rules over runs are made of.
#pragma once

#include <cstdint>
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

// Rising steps in each. What a run wrote and did again after a loss of ranks stands here once, as
// it was done last.
struct RunSeries {
  std::vector<StepReport> steps;  // as read_report() gives them
  std::vector<EvalReport> evals;  // of all sources, headline figures and others
  std::vector<MixtureReport> mixture;
  std::vector<SaveReport> saves;
  int64_t odd_lines = 0;  // that no run writes; skipped

  // Null: there was none.
  [[nodiscard]] const StepReport* last_step() const;

  // The last headline evaluation of a source; null: there was none.
  [[nodiscard]] const EvalReport* last_eval(const std::string& source = "") const;
};

// Reads a file; a line that is still being written is left out.
//
//   path         RUN/metrics.jsonl
//   total_steps  of the run; 0: unknown
//
// Throws data_error if there is none, io_error if the disk fails.
RunSeries read_series(const std::string& path, int64_t total_steps = 0);

// Training time up to each logged step: tokens over their speed, so without validation and saves.
std::vector<double> seconds_by_step(const std::vector<StepReport>& steps);

}  // namespace anabranch
