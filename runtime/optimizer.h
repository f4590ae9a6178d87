// The update of all parameters from their summed gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "parallel/flat_store.h"
#include "parallel/mesh.h"
#include "runtime/rates.h"

namespace anabranch {

// AdamW with decoupled weight decay on the parameters that ask for it, and Muon or Aurora for the
// matrices that a store says they own. Equations and sources: core/ops/adamw.h, muon.h, aurora.h.
class Optimizer {
 public:
  // Keeps references.
  Optimizer(FlatStore& store, const Config& config);

  // The Euclidean norm of the whole gradient, wherever its parts are. Where gradients are kept in
  // lanes it is the same whatever the ranks. Collective.
  [[nodiscard]] double grad_norm(const Mesh& mesh) const;
  // The same where all of it is here.
  [[nodiscard]] double grad_norm() const;
  // In two parts, so that a GPU's figures are read together with others.
  //
  //   to, squares  [buckets] float64: of what this rank owns of each bucket; `to` beside it
  void squares(const Tensor& to) const;
  [[nodiscard]] double grad_norm(const Mesh& mesh, std::span<const double> squares) const;

  // The update of step `step`, from 0, of what this rank owns. The gradient, of norm `grad_norm`,
  // is scaled down to the configured largest norm first.
  //
  //   updated  is told of each bucket that is done: those of the first layers first, which the next
  //            forward needs first
  void step(int64_t step, double grad_norm, const std::function<void(int bucket)>& updated = {});

  // The run's learning rate at a step.
  [[nodiscard]] double lr(int64_t step) const { return rates_.lr(step); }

  // Updates made so far, and those in which the kappa parameters moved: what bias corrections
  // count. Part of a checkpoint.
  [[nodiscard]] std::vector<double> counts() const;
  void set_counts(const std::vector<double>& counts);

  // Muon's row or column moments of a parameter, without rows if another rank owns it; empty if
  // there are none. Part of a checkpoint.
  [[nodiscard]] Tensor scales(const Param& w) const;

  // Matrices of this rank whose updates were not finite, and so not made; on a GPU those of which
  // hear_rejected() was told, or count_rejected() asked, which waits.
  [[nodiscard]] int64_t rejected() const { return rejected_; }

  void count_rejected();

  // That number to `figure` [1] float64, beside a GPU's parameters; without a wait. And back, when
  // the host has it.
  void tell_rejected(Tensor& figure) const;
  void hear_rejected(double figure);

 private:
  [[nodiscard]] Tensor squares() const;  // of all buckets, in the host's memory
  // The root of the squares of all rows of all parameters.
  [[nodiscard]] double grad_norm_of_rows(const Mesh& mesh) const;
  void step_entry(const FlatStore::Entry& entry, const Rate& rate, double grad_scale);
  void step_adamw(const FlatStore::Entry& entry, const Rate& rate, double grad_scale);
  void step_matrix(const FlatStore::Entry& entry, const Rate& rate, double grad_scale);

  FlatStore& store_;
  std::vector<std::vector<FlatStore::Entry>> entries_;  // by bucket
  const OptimConfig& config_;
  Rates rates_;
  int64_t updates_ = 0, kappa_updates_ = 0, rejected_ = 0;
  Tensor rejected_there_;  // [1] float64 of a GPU; empty without a matrix optimizer there
  std::unordered_map<const Param*, Tensor> scales_;  // never iterated
};

}  // namespace anabranch
