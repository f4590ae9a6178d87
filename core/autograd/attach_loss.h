// An auxiliary loss, carried by an activation.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// y = x in forward; backward adds `scale` * d loss to the gradients of what `loss` depends on.
//
//   x      any shape   an activation on the way to the main loss
//   loss   [1]         an auxiliary loss on the same tape (balance, router z, ...)
//   scale              its weight in the total, in units of the main loss's seed
//
// So a layer adds its own loss to the total without handing it up through the model.
Var attach_loss(const Var& x, const Var& loss, double scale);

}  // namespace anabranch
