#include "core/ops/router_z_loss.h"

#include "core/base/build.h"
#include "core/tensor/element.h"

namespace anabranch {
namespace {

void forward(Tensor& loss, const Tensor& logits, ZLossForm form) {
  if (logits.device().is_cpu()) {
    return set_element(loss, cpu::router_z_loss_forward(logits, form));
  }
  if constexpr (build::kCuda) return cuda::router_z_loss_forward(loss, logits, form);
  AB_FAIL("[router_z_loss] no kernel for this device in this build");
}

void backward(GradSink& dlogits, const Tensor& dloss, const Tensor& logits, ZLossForm form) {
  if (logits.device().is_cpu()) {
    return cpu::router_z_loss_backward(dlogits, element(dloss), logits, form);
  }
  if constexpr (build::kCuda) return cuda::router_z_loss_backward(dlogits, dloss, logits, form);
  AB_FAIL("[router_z_loss] no kernel for this device in this build");
}

}  // namespace

Var router_z_loss(const Var& logits, ZLossForm form) {
  const Tensor& s = logits.value();
  AB_CHECK(s.shape().rank() == 2 && s.dim(0) > 0 && s.dim(1) > 0 &&
               s.dtype() == accumulator_of(s.dtype()),
           "[router_z_loss] the logits are ", name_of(s.dtype()), s.shape(),
           " but need [rows, experts] of float32 or float64");
  Tensor loss = s.like({1}, s.dtype(), "router_z_loss");
  forward(loss, s, form);
  if (logits.tape() == nullptr) return loss;
  return logits.tape()->record("router_z_loss", loss, {}, [=](Tape& t, const Tensor& dy) {
    GradSink dlogits = t.grad(logits);
    backward(dlogits, dy, logits.value(), form);
  });
}

}  // namespace anabranch
