// How a run would scale: plans of the same configuration over more and more ranks.
#pragma once

#include <string>
#include <vector>

#include "runtime/planner/plan.h"

namespace anabranch {

struct ScalePoint {
  Cluster cluster;
  std::string refused;  // why there is no plan; empty: there is
  int64_t batch_tokens = 0, micro_batch = 0;
  std::string layout;  // the best one's
  double seconds = 0, waited = 0;
  double tokens_per_second = 0;
  double efficiency = 0;  // tokens a second and rank, of those of the first point

  [[nodiscard]] bool planned() const { return refused.empty(); }
};

struct ScaleCurves {
  std::vector<ScalePoint> weak;    // every rank has as many tokens of a step as at the first point
  std::vector<ScalePoint> strong;  // a step has as many tokens, in smaller micro-batches if need be
};

// The best layout at each number of ranks. Hosts are full but for the first few ranks.
//
//   ranks  rising
//   hosts  ranks of a host
//
// Throws Error (config) if the first point of a curve has no plan, or numbers of ranks are no whole
// hosts.
ScaleCurves scale_curves(const Config& config, int64_t vocabulary, const std::vector<int>& ranks,
                         int ranks_per_host, const Machine& machine);

// An SVG of both curves: efficiency, and tokens a second beside the ideal, over the ranks.
std::string draw_scale(const ScaleCurves& curves, const std::string& title);

}  // namespace anabranch
