// How many layers a mixture has, and how many parts a layer.
#pragma once

#include <cstdint>

namespace anabranch {

// All zero: the model is no mixture.
struct PartCounts {
  int64_t layers = 0, streams = 0, experts = 0;

  bool operator==(const PartCounts&) const = default;
};

}  // namespace anabranch
