// What each parameter's optimizer is told in each step: learning rates, decays, momentum.
#pragma once

#include <cstdint>

#include "core/autograd/param.h"
#include "runtime/config/config.h"
#include "runtime/schedule.h"

namespace anabranch {

struct Rate {
  double lr = 0;
  double weight_decay = 0;
  double beta1 = 0;     // of AdamW; the momentum of a matrix optimizer
  bool frozen = false;  // neither the parameter nor its moments move
};

// The shape of a run's rates over its planned steps.
Schedule schedule_of(const Config& config);

// The rates of a run. With m = sqrt(768 / width) if scale_by_width, b = sqrt(batch / 2^19) if
// scale_by_batch and s(t) the schedule, a parameter's lr is b s(t) times
//
//   embedding, head  m * their own lr
//   other AdamW's    their own lr
//   matrices         matrix_lr; their decay is matrix_weight_decay, times (12 / layers)^2 if
//                    decay_by_depth and (1 - t / T) if decay_to_zero
//
// The kappa parameters have a course of their own if kappa_lr is set: 0 over the first kappa_freeze
// of the run, up to kappa_lr over kappa_warmup_steps, and linearly to kappa_lr_end at its end;
// times m b s(t) if kappa_scaled.
class Rates {
 public:
  explicit Rates(const Config& config);

  // The run's learning rate at a step, from 0: of ordinary parameters.
  [[nodiscard]] double lr(int64_t step) const;

  [[nodiscard]] Rate of(const Param& w, int64_t step) const;

 private:
  [[nodiscard]] Rate of_kappa(int64_t step) const;
  [[nodiscard]] Rate of_matrix(int64_t step) const;
  [[nodiscard]] double peak_of(Role role) const;

  OptimConfig optim_;
  Schedule schedule_;
  double by_width_, by_batch_, by_depth_;
};

}  // namespace anabranch
