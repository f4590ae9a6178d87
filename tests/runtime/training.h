// Small training runs inside the test's process, with ranks as threads.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/trainer.h"
#include "tests/support/temp_dir.h"

namespace anabranch::test {

// A data set of about 100 samples of 16 tokens, with a validation split, and the runs made on it.
class TrainingFolder {
 public:
  // with_mask: the last token of the vocabulary is in no text.
  explicit TrainingFolder(bool with_mask = false);

  // Two layers of width 16 on 12 sequences a step, one at a time; saved at the end only.
  //
  //   run    folder of the run, below this one
  //   steps  of the whole run
  [[nodiscard]] Config config(const std::string& run, int64_t steps) const;

  std::filesystem::path operator/(const std::string& name) const { return dir_ / name; }

 private:
  TempDir dir_;
};

// What happened on each rank, by rank.
struct Training {
  std::vector<int> codes;
  std::vector<std::vector<StepReport>> steps;
  std::vector<SaveReport> saves;    // of rank 0
  std::vector<EvalReport> evals;    // of rank 0
  std::vector<std::string> events;  // of rank 0, "kind: text"
  size_t trace_bytes = 0;           // of rank 0's trace

  // The loss of every step, as rank 0 saw it.
  [[nodiscard]] std::vector<double> losses() const;
};

struct TrainingOptions {
  int ranks = 1;
  Resume resume = Resume::kAuto;
  std::pair<int64_t, int64_t> profile{-1, -1};
  // Called on a rank's thread when it reports a step.
  std::function<void(int rank, int64_t step, StopRequest& stop)> after_step = {};
  // Where tensors are; of GPUs each rank has its own, from 0 on.
  Device device = {};
  // What a rank knows of its GPU; none: it computes on the processor.
  std::function<GpuReading(int rank)> gpu = {};
  // By rank, where it runs, as its plan is told; empty: on one host, in order.
  std::vector<std::string> hosts = {};
  // As TrainJob's: for runs of which a rank may hang.
  std::function<void(int code)> give_up = {};
  // Told what a rank throws before the groups that it is in unwind, which may hang.
  std::function<void(const Error& error)> failed = {};
  // Filled as the run goes on, for runs that throw.
  Training* record = nullptr;
};

// Runs train() to its end. Throws what it throws.
Training run_training(const Config& config, const TrainingOptions& options = {});

// Figures of the same steps on two layouts.
void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                  const std::string& what);

}  // namespace anabranch::test
