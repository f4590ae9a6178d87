// A run's metrics.jsonl as series: what reports, figures and rules over runs are made of.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "runtime/metrics_reader.h"

namespace anabranch {

// Means over the sources of what was evaluated at one step.
struct SourceMean {
  int64_t step = 0;
  double loss = 0, bits_per_byte = 0;
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

  // At the last step, from `first` to `last`, at which the run was evaluated; nothing: at none.
  //
  //   looks_ahead  by what comes later too, instead of the headline figure
  [[nodiscard]] std::optional<SourceMean> last_eval(
      int64_t first = 0, int64_t last = std::numeric_limits<int64_t>::max(),
      bool looks_ahead = false) const;
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
