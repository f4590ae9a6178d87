// The update of all parameters from their summed gradients.
#pragma once

#include "parallel/flat_store.h"
#include "runtime/config/sections.h"

namespace anabranch {

// AdamW with decoupled weight decay on the parameters that ask for it.
// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2.
class Optimizer {
 public:
  Optimizer(FlatStore& store, const OptimConfig& config) : store_(store), config_(config) {}

  // The Euclidean norm of the whole gradient.
  [[nodiscard]] double grad_norm() const;

  // One update at learning rate `lr`. The gradient, of norm `grad_norm`, is scaled down to the
  // configured largest norm first.
  void step(double lr, double grad_norm);

  // Updates made so far: what the bias correction counts. Part of a checkpoint.
  [[nodiscard]] int64_t updates() const { return updates_; }

  void set_updates(int64_t updates) { updates_ = updates; }

 private:
  FlatStore& store_;
  const OptimConfig& config_;
  int64_t updates_ = 0;
};

}  // namespace anabranch
