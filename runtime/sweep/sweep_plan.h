// What a sweep would take on a cluster, before anything of it is submitted.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/planner/machine.h"
#include "runtime/sweep/expand.h"
#include "runtime/sweep/list_schedule.h"

namespace anabranch {

// What a rank does with more of them for one run, over what it does with the fewest, at least.
inline constexpr double kLeastEfficiency = 0.9;

struct SweepPlanOptions {
  int ranks = 0;  // of every run; 0: chosen by point
  // Runs of the sweep that are still to do; none given: all of them.
  std::optional<std::vector<size_t>> remaining = {};
};

// A point on some ranks, as its runs would be laid out: parallel.zero as configured, and where
// parallel.model is auto the smallest number that fits.
struct PointPlan {
  size_t point = 0;
  size_t runs = 0;      // of it, that are still to do
  std::string refused;  // why it has no plan; empty: it has
  int ranks = 0;        // of a run
  int fewest = 0;       // ranks on which a run fits
  int at_once = 0;      // runs that share a node; 0: a run takes several
  int nodes = 0;        // that a run touches
  int64_t steps = 0;
  std::string layout;
  double step_seconds = 0;
  double hours = 0;          // of a run's steps
  double rank_hours = 0;     // of a run; GPU-hours where a rank has a GPU
  double efficiency = 1;     // tokens/s a rank, over those with the fewest
  double memory_bytes = 0;   // of the fullest rank, at most
  double device_memory = 0;  // that it has

  [[nodiscard]] bool planned() const { return refused.empty(); }

  // The part of memory that stays free.
  [[nodiscard]] double headroom() const { return 1 - memory_bytes / device_memory; }
};

struct SweepPlan {
  Cluster cluster;
  std::string machine;
  bool on_gpu = false;
  std::vector<PointPlan> points;  // as the sweep's
  std::vector<RunSlot> schedule;  // of planned points' runs, by start; `run` is the sweep's
  double rank_hours = 0;          // of all
  double finish = 0;              // hours until the last ends
  size_t runs_left_out = 0;       // of points without a plan

  // The part of the cluster's hours that runs take, until the finish.
  [[nodiscard]] double busy() const;
};

// Plans each point on the numbers of ranks that divide a host, and on 1, 2, 4, .. hosts and all.
// A run gets the fewest that fit. Then, as long as the sweep ends sooner, the runs that end last
// get the next number at which a rank does at least kLeastEfficiency of what it did with the
// fewest. Points that cost the same are planned once. Hours are of steps alone: starts, evaluations
// and saves come on top.
//
//   progress  told of points planned, and of how many there are; may be empty
//
// Throws Error (config) if the machine lacks a figure, or its hosts have fewer devices than ranks.
SweepPlan plan_sweep(const Sweep& sweep, const Cluster& cluster, const Machine& machine,
                     const SweepPlanOptions& options = {},
                     const std::function<void(size_t, size_t)>& progress = {});

}  // namespace anabranch
