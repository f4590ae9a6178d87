#include "runtime/optimizer.h"

#include <algorithm>
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
  // As PyTorch's clip_grad_norm_, so that runs can be compared digit by digit.
  constexpr double kClipEps = 1e-6;
  const double scale = config_.clip > 0 ? config_.clip / (grad_norm + kClipEps) : 1.0;
  AdamwStep step{lr, config_.beta1, config_.beta2,       config_.eps,
                 0,  ++updates_,    std::min(scale, 1.0)};
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
