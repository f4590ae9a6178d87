// What a run would do on a cluster: every layout with its memory, its bytes on the links and its
// step's time, best first, and why the others lose. Runs nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/planner/step_time.h"

namespace anabranch {

// Bytes of the fullest rank, at most at one time.
struct RankMemory {
  double weights = 0, masters = 0, gradients = 0, moments = 0;
  double activations = 0;  // at their peak in a micro-batch, even routing
  double regions = 0;      // of those, what is here for the streams and experts of other ranks
  double worst = 0;      // never exceeded: all rows of a model group at one rank's experts, and 5%
  double wire = 0;       // gradients on their way, where they travel in another type
  double workspace = 0;  // of matrix products on a GPU
  double save = 0;       // the copy from which a checkpoint is written; a GPU's is in its host

  // Of tensors on the device, as the allocator counts them. Gradients take to the wire while
  // backward gives activations back.
  [[nodiscard]] double total() const { return kept() + std::max(activations, wire); }

  [[nodiscard]] double reserved() const { return kept() + std::max(worst, wire); }

  // From step to step.
  [[nodiscard]] double kept() const { return weights + masters + gradients + moments + workspace; }
};

struct LayoutPlan {
  Layout layout;
  std::string refused;  // why it is not legal; empty: it is, and what follows is filled
  RankMemory memory;
  bool fits = false;
  std::vector<TimedTransfer> transfers;
  StepSeconds seconds;
  double tokens_per_second = 0;
  double mfu = 0;   // of the device's peak in the run's type
  std::string why;  // that it is best, or why it is not

  [[nodiscard]] bool legal() const { return refused.empty(); }

  // Bytes that a rank receives in a step; and of them from other hosts.
  [[nodiscard]] double received() const;
  [[nodiscard]] double from_network() const;
};

struct Plan {
  Cluster cluster;
  std::string machine;
  int64_t accumulation = 0, micro_batch = 0;
  int64_t tokens = 0;                // of a step
  double parameters = 0, flops = 0;  // of the model, of a step over all ranks
  double device_memory = 0;
  std::vector<LayoutPlan> layouts;  // those that fit, fastest first; too large ones; illegal ones

  // Null: none is legal.
  [[nodiscard]] const LayoutPlan* best() const;
};

// Throws Error (config) if the batch does not divide among the ranks, a GPU host has fewer devices
// than ranks, or the machine lacks a figure.
Plan make_plan(const Config& config, int64_t vocabulary, const Cluster& cluster,
               const Machine& machine);

// Memory of one layout: what `fits` and the tests look at.
RankMemory rank_memory(const WeightBytes& weights, const Config& config, int64_t vocabulary,
                       const Layout& layout);

}  // namespace anabranch
