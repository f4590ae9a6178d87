#include "runtime/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/ops/adamw.h"
#include "core/ops/squared_norm.h"

namespace anabranch {

Optimizer::Optimizer(FlatStore& store, const Config& config)
    : store_(store), config_(config.optim), rates_(config) {}

double Optimizer::grad_norm() const {
  double square = 0;
  for (const Bucket& bucket : store_.buckets()) square += squared_norm(bucket.grad);
  return std::sqrt(square);
}

void Optimizer::step(int64_t step, double grad_norm) {
  // As PyTorch's clip_grad_norm_, so that runs can be compared digit by digit.
  constexpr double kClipEps = 1e-6;
  const double scale = config_.clip > 0 ? std::min(config_.clip / (grad_norm + kClipEps), 1.0) : 1;
  ++updates_;
  bool kappa_moves = false;
  for (const FlatStore::Entry& entry : store_.entries()) {
    const Rate rate = rates_.of(*entry.param, step);
    if (rate.frozen) continue;
    if (entry.param->role == Role::kKappa && !std::exchange(kappa_moves, true)) ++kappa_updates_;
    step_adamw(entry, rate, scale);
  }
}

void Optimizer::step_adamw(const FlatStore::Entry& entry, const Rate& rate, double grad_scale) {
  Param& w = *entry.param;
  AdamwStep step{rate.lr,     rate.beta1,        config_.beta2,
                 config_.eps, rate.weight_decay, w.role == Role::kKappa ? kappa_updates_ : updates_,
                 grad_scale};
  Tensor m = store_.m(entry), v = store_.v(entry);
  Tensor* rounded = w.value.shares(w.master) ? nullptr : &w.value;
  adamw(w.master, m, v, w.grad, rounded, step);
}

std::vector<double> Optimizer::counts() const {
  return {static_cast<double>(updates_), static_cast<double>(kappa_updates_)};
}

void Optimizer::set_counts(const std::vector<double>& counts) {
  updates_ = static_cast<int64_t>(counts.front());
  kappa_updates_ = counts.size() > 1 ? static_cast<int64_t>(counts[1]) : 0;
}

}  // namespace anabranch
