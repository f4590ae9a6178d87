// The state of a run as named tensors, as checkpoints see it.
#pragma once

#include <string>
#include <vector>

#include "core/tensor/tensor.h"

namespace anabranch {

// This rank's slice of one logical tensor. `value` shares the memory that training uses.
struct StateItem {
  std::string name;    // unique over the run: "wte.weight", "adamw.m/wte.weight"
  Shape global_shape;  // of the logical tensor
  int64_t begin = 0;   // first index of axis 0 that is here
  Tensor value;
};

// Throws Error (data, 65) that names the element if a floating tensor holds a NaN or an infinity.
void check_finite(const std::string& name, const Tensor& value);

}  // namespace anabranch
