// y += x, the one arithmetic that the tape itself needs.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch {

// y += x, element by element. Types and counts must be equal; sums are rounded once to y's type.
void accumulate(Tensor& y, const Tensor& x);

}  // namespace anabranch
