#include "runtime/rates.h"

#include <cmath>

#include "runtime/config/validate.h"

namespace anabranch {
namespace {

// The sizes at which nanochat's rates were tuned.
constexpr double kWidth = 768, kBatch = 1 << 19, kDepth = 12;

// Where nanochat's momentum starts.
constexpr double kFirstMomentum = 0.85;

double or_else(double value, double otherwise) { return value > 0 ? value : otherwise; }

}  // namespace

Schedule schedule_of(const Config& config) {
  const OptimConfig& optim = config.optim;
  return {optim.schedule, optim.min_lr_ratio, optim.warmup_steps, planned_steps(config.train),
          optim.warmdown};
}

Rates::Rates(const Config& config)
    : optim_(config.optim),
      schedule_(schedule_of(config)),
      by_width_(optim_.scale_by_width ? std::sqrt(kWidth / static_cast<double>(config.model.width))
                                      : 1),
      by_batch_(optim_.scale_by_batch
                    ? std::sqrt(static_cast<double>(config.train.batch_tokens) / kBatch)
                    : 1),
      by_depth_(optim_.decay_by_depth
                    ? std::pow(kDepth / static_cast<double>(config.model.layers), 2)
                    : 1) {}

double Rates::lr(int64_t step) const { return optim_.lr * by_batch_ * schedule_(step); }

double Rates::peak_of(Role role) const {
  switch (role) {
    case Role::kEmbedding:
      return by_width_ * or_else(optim_.embedding_lr, optim_.lr);
    case Role::kHead:
      return by_width_ * or_else(optim_.head_lr, optim_.lr);
    case Role::kResidual:
      return or_else(optim_.residual_lr, optim_.lr);
    case Role::kInputResidual:
      return or_else(optim_.input_residual_lr, optim_.lr);
    default:
      return optim_.lr;
  }
}

Rate Rates::of(const Param& w, int64_t step) const {
  if (w.owner == Owner::kMatrix) return of_matrix(step);
  if (w.role == Role::kKappa && optim_.kappa_lr > 0) return of_kappa(step);
  Rate rate;
  rate.lr = peak_of(w.role) * by_batch_ * schedule_(step);
  rate.weight_decay = w.decay ? optim_.weight_decay : 0;
  rate.beta1 = w.role == Role::kInputResidual ? or_else(optim_.input_residual_beta1, optim_.beta1)
                                              : optim_.beta1;
  return rate;
}

Rate Rates::of_kappa(int64_t step) const {
  const auto total = static_cast<double>(schedule_.total_steps);
  const auto freeze = static_cast<int64_t>(std::ceil(optim_.kappa_freeze * total));
  const bool still = step < freeze;
  Rate rate{0, 0, optim_.beta1, still && !optim_.kappa_scaled};
  if (still) return rate;
  const int64_t since = step - freeze, warmup = optim_.kappa_warmup_steps;
  if (since < warmup) {
    rate.lr = optim_.kappa_lr * static_cast<double>(since + 1) / static_cast<double>(warmup);
  } else {
    const double fall = std::max(total - static_cast<double>(freeze + warmup), 1.0);
    const double progress = std::min(static_cast<double>(since - warmup) / fall, 1.0);
    rate.lr = optim_.kappa_lr + (optim_.kappa_lr_end - optim_.kappa_lr) * progress;
  }
  if (optim_.kappa_scaled) rate.lr *= by_width_ * by_batch_ * schedule_(step);
  return rate;
}

Rate Rates::of_matrix(int64_t step) const {
  const auto total = static_cast<double>(std::max<int64_t>(schedule_.total_steps, 1));
  Rate rate;
  rate.lr = optim_.matrix_lr * by_batch_ * schedule_(step);
  rate.weight_decay = optim_.matrix_weight_decay * by_depth_;
  if (optim_.decay_to_zero) rate.weight_decay *= 1 - static_cast<double>(step) / total;
  rate.beta1 = optim_.momentum;
  if (step < optim_.momentum_warmup_steps) {
    const double share =
        static_cast<double>(step) / static_cast<double>(optim_.momentum_warmup_steps);
    rate.beta1 = kFirstMomentum + (optim_.momentum - kFirstMomentum) * share;
  }
  return rate;
}

}  // namespace anabranch
