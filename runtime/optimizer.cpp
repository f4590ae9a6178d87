#include "runtime/optimizer.h"

#include <cmath>

#include "core/ops/adamw.h"
#include "core/ops/squared_norm.h"

namespace anabranch {

double Optimizer::grad_norm() const {
  double square = 0;
  for (const Bucket& bucket : store_.buckets()) square += squared_norm(bucket.grad);
  return std::sqrt(square);
}

void Optimizer::step(double lr, double grad_norm) {
  const bool clips = config_.clip > 0 && grad_norm > config_.clip;
  AdamwStep step{lr,         config_.beta1, config_.beta2,
                 config_.eps, 0,             ++updates_,
                 clips ? config_.clip / grad_norm : 1.0};
  for (const FlatStore::Entry& entry : store_.entries()) {
    Param& w = *entry.param;
    step.lr = lr * static_cast<double>(w.lr_scale);
    step.weight_decay = w.decay ? config_.weight_decay : 0;
    Tensor m = store_.m(entry), v = store_.v(entry);
    Tensor* rounded = w.value.shares(w.master) ? nullptr : &w.value;
    adamw(w.master, m, v, w.grad, rounded, step);
  }
}

}  // namespace anabranch
