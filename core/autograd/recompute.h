// Activation recomputation as an op: keep a block's input, run the block again in backward.
#pragma once

#include <functional>

#include "core/autograd/tape.h"

namespace anabranch {

// y = f(x). Keeps only `x` until backward, which runs `f` again on a tape of its own.
//
// `f` must be a pure function of `x` and of parameters: same input, same output, random numbers
// included (they are keyed by position, not drawn from a sequence). Ops on ids inside `f` take
// x.tape(). Whatever `f` writes elsewhere it writes only if not x.tape()->recomputing().
// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
Var recompute(const Var& x, const std::function<Var(const Var&)>& f);

}  // namespace anabranch
