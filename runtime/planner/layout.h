// How the ranks of a job can divide a model and its batch among themselves.
#pragma once

#include <string>
#include <vector>

#include "core/autograd/param.h"
#include "parallel/mesh.h"
#include "parallel/regions.h"
#include "runtime/config/config.h"

namespace anabranch {

struct Cluster {
  int nodes = 1, ranks_per_host = 1;

  [[nodiscard]] int ranks() const { return nodes * ranks_per_host; }
};

struct Layout {
  MeshShape mesh;
  StreamLayout streams = StreamLayout::kGather;
  bool has_streams = false;
  bool zero = false;  // optimizer state lies over the ranks that reduce a gradient together

  [[nodiscard]] int ranks() const { return mesh.data * mesh.model; }

  // "data 4 x model 2, gather, zero 1"
  [[nodiscard]] std::string name() const;
};

struct LayoutChoice {
  Layout layout;
  std::string refused;  // why it is not legal; empty: it is
};

// Every way, legal or not, to lay the configured run over a cluster: all numbers of ranks for a
// copy of the streams or experts that divide the ranks or the parts, both layouts of streams,
// optimizer state whole and divided. Those that are illegal alike are one.
//
// Throws Error (config) if the batch does not divide among so many ranks.
std::vector<LayoutChoice> layouts(const Config& config, const Cluster& cluster);

// Which axis of a parameter ranks of the `model` axis have parts of; -1: each has all of it. Whole
// parameters of single experts are one of `parts`.
struct SplitRule {
  int axis = -1;
  int64_t parts = 1;    // that lie over the ranks
  int64_t one_of = -1;  // this parameter is that part, whole

  [[nodiscard]] bool split() const { return axis >= 0 || one_of >= 0; }
};

SplitRule split_rule(const Param& w, const Config& config, const Layout& layout);

// Elements of a parameter that the fullest rank has.
int64_t part_count(const Param& w, const SplitRule& rule, const Layout& layout);

}  // namespace anabranch
