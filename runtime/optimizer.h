// The update of all parameters from their summed gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/flat_store.h"
#include "runtime/rates.h"

namespace anabranch {

// AdamW with decoupled weight decay on the parameters that ask for it.
// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2.
class Optimizer {
 public:
  // Keeps references.
  Optimizer(FlatStore& store, const Config& config);

  // The Euclidean norm of the whole gradient.
  [[nodiscard]] double grad_norm() const;

  // The update of step `step`, from 0. The gradient, of norm `grad_norm`, is scaled down to the
  // configured largest norm first.
  void step(int64_t step, double grad_norm);

  // The run's learning rate at a step.
  [[nodiscard]] double lr(int64_t step) const { return rates_.lr(step); }

  // Updates made so far, and those in which the kappa parameters moved: what bias corrections
  // count. Part of a checkpoint.
  [[nodiscard]] std::vector<double> counts() const;
  void set_counts(const std::vector<double>& counts);

 private:
  void step_adamw(const FlatStore::Entry& entry, const Rate& rate, double grad_scale);

  FlatStore& store_;
  const OptimConfig& config_;
  Rates rates_;
  int64_t updates_ = 0, kappa_updates_ = 0;
};

}  // namespace anabranch
