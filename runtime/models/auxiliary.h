// A layer's auxiliary losses, in its gradients and in its figures.
#pragma once

#include "core/autograd/tape.h"
#include "runtime/models/measures.h"

namespace anabranch {

// Of one training forward.
struct AuxiliaryLosses {
  double share = 0;              // of the step's tokens that this micro-batch has; 0: no training
  Measures* measures = nullptr;  // null: nobody asks

  // Where `tape` may write figures: null in inference, and when a layer runs again in backward.
  [[nodiscard]] Measures* figures(const Tape* tape) const {
    return tape == nullptr || tape->recomputing() ? nullptr : measures;
  }

  // y, carrying weight * share * loss; counted in the first place of the figures.
  [[nodiscard]] Var attach(const Var& y, const Var& loss, double weight) const;
};

}  // namespace anabranch
