#include "core/ops/balance_loss.h"

#include "core/tensor/element.h"

namespace anabranch {

Var balance_loss(const Var& logits, const std::vector<int64_t>& counts, const BalanceRule& rule) {
  const Tensor& s = logits.value();
  AB_CHECK(s.shape().rank() == 2 && s.dim(0) > 0 && s.dim(1) > 0 &&
               s.dtype() == accumulator_of(s.dtype()),
           "[balance_loss] the logits are ", name_of(s.dtype()), s.shape(),
           " but need [rows, experts] of float32 or float64");
  const int64_t pool = rule.pool_rows > 0 ? rule.pool_rows : s.dim(0), pools = s.dim(0) / pool;
  AB_CHECK(s.dim(0) % pool == 0 && rule.choices >= 1 && rule.ranks >= 1, "[balance_loss] pools of ",
           rule.pool_rows, " rows do not divide ", s.dim(0), " rows, or the choices ", rule.choices,
           " or ranks ", rule.ranks, " are not positive");
  AB_CHECK(std::ssize(counts) == pools * s.dim(1), "[balance_loss] ", counts.size(), " counts for ",
           pools, " pools and ", s.dim(1), " experts");
  AB_CHECK(s.device().is_cpu(), "[balance_loss] no kernel for this device in this build");
  std::vector<double> shares;
  shares.reserve(counts.size());
  for (const int64_t count : counts) {
    shares.push_back(static_cast<double>(count) /
                     static_cast<double>(pool * rule.ranks * rule.choices));
  }
  Tensor loss = s.like({1}, s.dtype(), "balance_loss");
  const double value = cpu::balance_loss_forward(s, shares, pool);
  set_element(loss, value);
  if (logits.tape() == nullptr) return loss;
  return logits.tape()->record("balance_loss", loss, {}, [=](Tape& t, const Tensor& dy) {
    GradSink dlogits = t.grad(logits);
    const double seed = element(dy);
    cpu::balance_loss_backward(dlogits, seed, logits.value(), shares, pool);
  });
}

}  // namespace anabranch
