#include "core/ops/router_z_loss.h"

#include "core/tensor/element.h"

namespace anabranch {

Var router_z_loss(const Var& logits, ZLossForm form) {
  const Tensor& s = logits.value();
  AB_CHECK(s.shape().rank() == 2 && s.dim(0) > 0 && s.dim(1) > 0 &&
               s.dtype() == accumulator_of(s.dtype()),
           "[router_z_loss] the logits are ", name_of(s.dtype()), s.shape(),
           " but need [rows, experts] of float32 or float64");
  AB_CHECK(s.device().is_cpu(), "[router_z_loss] no kernel for this device in this build");
  Tensor loss = s.like({1}, s.dtype(), "router_z_loss");
  const double value = cpu::router_z_loss_forward(s, form);
  set_element(loss, value);
  if (logits.tape() == nullptr) return loss;
  return logits.tape()->record("router_z_loss", loss, {}, [=](Tape& t, const Tensor& dy) {
    GradSink dlogits = t.grad(logits);
    const double seed = element(dy);
    cpu::router_z_loss_backward(dlogits, seed, logits.value(), form);
  });
}

}  // namespace anabranch
