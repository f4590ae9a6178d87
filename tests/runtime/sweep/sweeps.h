// The sweep files of this tree, expanded.
#pragma once

#include <string>

#include "runtime/sweep/expand.h"

namespace anabranch::test {

// configs/sweeps/<name>.yaml
inline Sweep tree_sweep(const std::string& name, const SweepOptions& options = {}) {
  return expand_sweep(load_sweep(std::string(AB_SOURCE_DIR) + "/configs/sweeps/" + name + ".yaml"),
                      options);
}

// The point of an id. Throws if there is none.
inline const SweepPoint& point_called(const Sweep& sweep, const std::string& id) {
  for (const SweepPoint& point : sweep.points) {
    if (point.id == id) return point;
  }
  throw std::runtime_error("no point " + id);
}

}  // namespace anabranch::test
