#include "core/ops/balance_loss.h"

#include "core/base/build.h"
#include "core/tensor/element.h"

namespace anabranch {
namespace {

// Rows of a pool.
int64_t check(const Tensor& s, const Tensor& counts, const BalanceRule& rule) {
  AB_CHECK(s.shape().rank() == 2 && s.dim(0) > 0 && s.dim(1) > 0 &&
               s.dtype() == accumulator_of(s.dtype()),
           "[balance_loss] the logits are ", name_of(s.dtype()), s.shape(),
           " but need [rows, experts] of float32 or float64");
  const int64_t pool = rule.pool_rows > 0 ? rule.pool_rows : s.dim(0), pools = s.dim(0) / pool;
  AB_CHECK(s.dim(0) % pool == 0 && rule.choices >= 1 && rule.ranks >= 1, "[balance_loss] pools of ",
           rule.pool_rows, " rows do not divide ", s.dim(0), " rows, or the choices ", rule.choices,
           " or ranks ", rule.ranks, " are not positive");
  AB_CHECK(counts.count() == pools * s.dim(1) && counts.dtype() == DType::kI64 &&
               counts.device() == s.device(),
           "[balance_loss] the counts are ", name_of(counts.dtype()), counts.shape(),
           " but need int64[", pools, ", ", s.dim(1), "] beside the logits");
  return pool;
}

// choices: of a pool, which counts are shares of.
Var on_cpu(const Var& logits, const Tensor& counts, double choices, int64_t pool) {
  const Tensor& s = logits.value();
  std::vector<double> shares;
  shares.reserve(static_cast<size_t>(counts.count()));
  for (const int64_t count : counts.span<int64_t>()) {
    shares.push_back(static_cast<double>(count) / choices);
  }
  Tensor loss = s.like({1}, s.dtype(), "balance_loss");
  set_element(loss, cpu::balance_loss_forward(s, shares, pool));
  if (logits.tape() == nullptr) return loss;
  return logits.tape()->record("balance_loss", loss, {}, [=](Tape& t, const Tensor& dy) {
    GradSink dlogits = t.grad(logits);
    cpu::balance_loss_backward(dlogits, element(dy), logits.value(), shares, pool);
  });
}

Var on_gpu(const Var& logits, const Tensor& counts, double choices, int64_t pool) {
  if constexpr (build::kCuda) {
    const Tensor& s = logits.value();
    const cuda::BalanceShares shares{counts, pool, 1 / choices};
    Tensor loss = s.like({1}, s.dtype(), "balance_loss");
    cuda::balance_loss_forward(loss, s, shares);
    if (logits.tape() == nullptr) return loss;
    return logits.tape()->record("balance_loss", loss, {}, [=](Tape& t, const Tensor& dy) {
      GradSink dlogits = t.grad(logits);
      cuda::balance_loss_backward(dlogits, dy, logits.value(), shares);
    });
  }
  AB_FAIL("[balance_loss] no kernel for this device in this build");
}

}  // namespace

Var balance_loss(const Var& logits, const Tensor& counts, const BalanceRule& rule) {
  const int64_t pool = check(logits.value(), counts, rule);
  const auto choices = static_cast<double>(pool * rule.ranks * rule.choices);
  return logits.value().device().is_cpu() ? on_cpu(logits, counts, choices, pool)
                                          : on_gpu(logits, counts, choices, pool);
}

}  // namespace anabranch
