// A gradient that counts for less on its way back.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// y = x in forward; dx = factor * dy. Keeps nothing.
Var scale_gradient(const Var& x, double factor);

}  // namespace anabranch
