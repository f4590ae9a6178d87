// What a run tells of itself, and who is told: metrics.jsonl, Prometheus, a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/group.h"
#include "runtime/models/measures.h"

namespace anabranch {

// A figure over the ranks.
struct Spread {
  double min = 0, median = 0, max = 0, sum = 0;
};

// One optimizer step, as all ranks see it.
struct StepReport {
  int64_t step = 0;  // steps done, this one included
  int64_t total_steps = 0;
  bool logged = false;  // one of every train.log_every, or the last
  int64_t tokens = 0;   // trained on since step 0
  double loss = 0;      // nats per token, before the update
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  double seconds = 0;    // of the step
  Spread compute_seconds;
  Spread comm_seconds;       // waiting for other ranks, not hidden behind compute
  Spread data_seconds;       // waiting for the loader
  double slowest_ratio = 1;  // compute of the slowest rank over the median's, to the last log
  Spread resident_bytes;
  double tokens_per_second = 0;  // over all ranks
  double flops_per_second = 0;   // model arithmetic over all ranks, recomputation not counted
  double mfu = -1;               // of the stated peak, 0..1; -1: no peak was stated
  double hidden = 1;             // the part of this rank's gradient reduction behind backward
  int64_t skipped_steps = 0;     // since step 0
  std::string skipped;           // why this step was not applied: nonfinite, outlier; empty: it was
  std::vector<Spread> gpu;       // as GpuReading; empty: on the processor
  CommStats comm;                // of this rank, since it started
  std::vector<Reading> readings;  // the model's own figures, if logged
};

struct EvalReport {
  int64_t step = 0;
  bool looks_ahead = false;  // routed as in training, by what comes later too: no headline figure
  std::string source;        // of the validation split; empty: the only one
  double loss = 0;           // nats per token
  double perplexity = 0;
  double bits_per_byte = 0;
  int64_t tokens = 0;
  double seconds = 0;
};

struct SaveReport {
  int64_t step = 0;
  bool ok = false;
  std::string error;
  double stall_seconds = 0;  // training stood still
  double write_seconds = 0;  // beside training
  int64_t bytes = 0;         // by this rank
};

// Hears of a run. Called on the training thread: a sink hands slow work to a thread of its own.
class ReportSink {
 public:
  virtual ~ReportSink() = default;
  virtual void step(const StepReport& report) = 0;
  virtual void eval(const EvalReport& report) = 0;
  virtual void save(const SaveReport& report) = 0;
  // Anything else worth a line: resumed, signal received, checkpoint passed over.
  virtual void event(const std::string& kind, const std::string& text) = 0;
};

}  // namespace anabranch
