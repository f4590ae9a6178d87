#include "core/ops/gelu.h"

namespace anabranch {

Var gelu(const Var& x, GeluForm form) {
  Tensor y = x.value().like("gelu");
  AB_CHECK(y.device().is_cpu(), "[gelu] no kernel for this device in this build");
  cpu::gelu_forward(y, x.value(), form);
  if (x.tape() == nullptr) return y;
  return x.tape()->record_many("gelu", {y}, {}, [x, form](Tape& t, std::span<Tensor> dys) {
    if (!t.wants(x)) return;
    Tensor dx = dys[0].unique() ? dys[0] : dys[0].like("gradient");
    cpu::gelu_backward(dx, dys[0], x.value(), form);
    t.give(x, dx);
  })[0];
}

}  // namespace anabranch
