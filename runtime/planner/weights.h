// What a rank holds of a model's parameters and of what training keeps beside them.
#pragma once

#include "core/autograd/param.h"
#include "runtime/models/model.h"
#include "runtime/planner/layout.h"

namespace anabranch {

// Elements whose gradients are summed over the same ranks.
struct ReducedElements {
  double count = 0;
  double last = 0;  // of those that backward completes last: the tables of the input
};

// Of the fullest rank, in bytes; from the model's own parameters, not from a formula of its size.
struct WeightBytes {
  double parameters = 0;  // of the whole model
  double here = 0;        // of them on the rank
  double values = 0;      // what ops read
  double masters = 0;     // beside them, where types differ
  double gradients = 0;
  double moments = 0;
  double save = 0;          // the copy from which a checkpoint is written
  double polar_flops = 0;   // of a matrix optimizer's step on the rank
  double update_bytes = 0;  // that the optimizer and the gradient's norm read and write
  ReducedElements all, data;
};

WeightBytes weight_bytes(Model& model, const Config& config, const Layout& layout);

}  // namespace anabranch
