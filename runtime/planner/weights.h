// What a rank holds of a model's parameters and of what training keeps beside them.
#pragma once

#include "runtime/memory_need.h"
#include "runtime/planner/layout.h"

namespace anabranch {

// Elements whose gradients are summed over the same ranks.
struct ReducedElements {
  double count = 0;  // with the padding of their buckets
  double last = 0;   // of those that backward completes last: the tables of the input
};

// Of the fullest rank: from the shapes of the model's own parameters there and the buckets in which
// a run would lay them out.
struct WeightBytes {
  MemoryNeed need;
  double here = 0;          // elements, with the padding of their buckets
  double polar_flops = 0;   // of a matrix optimizer's step on the rank
  double update_bytes = 0;  // that the optimizer and the gradient's norm read and write
  ReducedElements all, data;
};

// Throws as make_model.
WeightBytes weight_bytes(const Config& config, int64_t vocabulary, const Layout& layout);

}  // namespace anabranch
