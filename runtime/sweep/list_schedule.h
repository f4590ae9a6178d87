// When and where the runs of a sweep would run on the nodes of a cluster.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/planner/layout.h"

namespace anabranch {

// A run as a scheduler sees it.
struct RunLoad {
  int ranks = 1;  // at most a host's, or of whole hosts
  double hours = 0;
};

struct RunSlot {
  size_t run = 0;
  std::vector<int> nodes;  // of which a small run has a part
  double start = 0, end = 0;
};

// List scheduling, the longest runs first: each starts as early as it can, and on the first node
// where it can, so that small runs are packed onto a node before another is begun. Runs that are
// placed stay; nothing is moved into gaps before them.
//
// Returns the runs by start. Throws Error (internal) if a run does not fit the cluster.
std::vector<RunSlot> list_schedule(const std::vector<RunLoad>& runs, const Cluster& cluster);

// When the last of them ends; 0 without any.
double finish_of(const std::vector<RunSlot>& slots);

}  // namespace anabranch
