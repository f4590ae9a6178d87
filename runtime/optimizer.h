// The update of all parameters from their summed gradients.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "parallel/flat_store.h"
#include "runtime/rates.h"

namespace anabranch {

// AdamW with decoupled weight decay on the parameters that ask for it, and Muon or Aurora for the
// matrices that a store says they own. Equations and sources: core/ops/adamw.h, muon.h, aurora.h.
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

  // Muon's row or column moments of a parameter; empty if it has none. Part of a checkpoint.
  [[nodiscard]] Tensor scales(const Param& w) const;

  // Matrices whose updates were not finite, and so not made.
  [[nodiscard]] int64_t rejected() const { return rejected_; }

 private:
  void step_adamw(const FlatStore::Entry& entry, const Rate& rate, double grad_scale);
  void step_matrix(const FlatStore::Entry& entry, const Rate& rate, double grad_scale);

  FlatStore& store_;
  const OptimConfig& config_;
  Rates rates_;
  int64_t updates_ = 0, kappa_updates_ = 0, rejected_ = 0;
  std::unordered_map<const Param*, Tensor> scales_;  // never iterated
};

}  // namespace anabranch
