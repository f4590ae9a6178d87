// How long a step takes on a machine, and what of it is waiting.
#pragma once

#include <vector>

#include "runtime/models/products.h"
#include "runtime/planner/activations.h"
#include "runtime/planner/traffic.h"

namespace anabranch {

// Seconds of a step.
struct StepSeconds {
  double products = 0;  // linear maps and head, forward and backward, recomputed ones too
  double attention = 0;
  double rest = 0;  // what memory's speed bounds
  double optimizer = 0;
  double gradients = 0;  // waited for their reduction, and for updated weights
  double regions = 0;    // waited for streams and experts
  double control = 0;

  [[nodiscard]] double compute() const { return products + attention + rest; }

  [[nodiscard]] double waited() const { return gradients + regions + control; }

  [[nodiscard]] double total() const { return compute() + optimizer + waited(); }
};

// What computing a micro-batch takes a rank.
struct ComputeSeconds {
  double products = 0, attention = 0, rest = 0;  // forward and backward
  double forward = 0;                            // of them
  double streams = 0;                            // products of stream regions
  double chunks = 1;                             // of a region

  [[nodiscard]] double total() const { return products + attention + rest; }

  [[nodiscard]] double backward() const { return total() - forward; }
};

// Where a rank computes.
struct Place {
  const Machine& machine;
  int ranks_per_host = 1;
  DType type = DType::kF32;  // the run's compute type
};

// A product takes as long as its operations or as its bytes, whichever is longer, and is started
// once a direction. Parts of the streams or experts have the rows of all ranks of a model group.
//
//   products     of the whole model on one rank's micro-batch
//   activations  of it
ComputeSeconds compute_seconds(const Products& products, const ActivationBytes& activations,
                               const Config& config, const Layout& layout, const Place& place);

double optimizer_seconds(const WeightBytes& weights, const Place& place);

// A transfer that a plan has timed.
struct TimedTransfer {
  Transfer what;
  Placement on;
  double received = 0, from_network = 0;  // bytes of a rank and step
  double seconds = 0;                     // of a step
};

std::vector<TimedTransfer> timed(const std::vector<Transfer>& all, const Layout& layout,
                                 const Cluster& cluster, const Machine& machine);

// Adds what is waited for. Gradients hide behind the last backward, but for the bucket of the input
// tables, which is ready last; weights behind a forward, but for the first bucket; streams behind
// their products, but for one chunk.
void add_waiting(StepSeconds& step, const std::vector<TimedTransfer>& transfers,
                 const ComputeSeconds& compute, const WeightBytes& weights, int64_t accumulation,
                 double overlap);

}  // namespace anabranch
