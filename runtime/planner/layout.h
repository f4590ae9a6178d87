// How the ranks of a job can divide a model and its batch among themselves.
#pragma once

#include <string>
#include <vector>

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
  bool zero = false;    // optimizer state lies over the ranks that reduce a gradient together
  bool on_gpu = false;  // whose kernels take other pieces of the logits at a time

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

// The configuration of a run on such a layout.
Config laid_out(const Config& config, const Layout& layout);

}  // namespace anabranch
