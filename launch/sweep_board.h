// A sweep's runs and the state of each, looked at again and again.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launch/slurm_arrays.h"
#include "runtime/run_series.h"
#include "runtime/sweep/record.h"
#include "runtime/sweep/run_state.h"
#include "runtime/sweep/sweep_directory.h"

namespace anabranch {

class SweepBoard {
 public:
  // Throws data_error if nothing was submitted in the directory.
  explicit SweepBoard(SweepDirectory directory);

  // Reads the states anew; of runs that are done only if their files have changed. SLURM is asked
  // every 5 seconds, every minute if it did not answer, and at once if a decision hangs on it.
  void look(bool decides = false);

  [[nodiscard]] const SweepDirectory& directory() const { return directory_; }

  [[nodiscard]] const SweepRecord& record() const { return record_; }

  // As record().runs.
  [[nodiscard]] const std::vector<RunState>& states() const { return states_; }

  // Why SLURM's queue could not be asked; empty: it was, or there was no need.
  [[nodiscard]] const std::string& trouble() const { return queue_.trouble; }

  // Whether a run is to be started: nobody has it in hand, and it is not over. With `retry` failed
  // ones are too, and those stopped by hand.
  [[nodiscard]] bool may_start(size_t run, bool retry) const;

  // Ends the runs that the sweep's rule says, by what metrics.jsonl of all runs say now. Returns
  // their ids.
  std::vector<std::string> apply_rule();

 private:
  struct Seen {  // of a run's files
    uintmax_t attempts = 0, metrics = 0;
    bool claimed = false;
    std::string queue;

    bool operator==(const Seen&) const = default;
  };

  [[nodiscard]] Seen glance(const std::string& id, const JobOfRun& job) const;

  SweepDirectory directory_;
  SweepRecord record_;
  std::vector<RunState> states_;
  std::vector<Seen> seen_;
  SlurmQueue queue_;
  std::chrono::steady_clock::time_point ask_again_;
  std::map<size_t, RunSeries> ended_;  // series of runs that are over
};

// The directory of a sweep that a command names: a sweep's file, or the directory itself.
SweepDirectory sweep_directory_of(const std::string& file_or_folder, SweepScale scale);

}  // namespace anabranch
