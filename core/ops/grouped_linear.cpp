#include "core/ops/grouped_linear.h"

namespace anabranch {

Var grouped_linear(const Var& x, Param& w, const Groups& groups) {
  AB_CHECK(x.shape().rank() == 2 && w.value.shape().rank() == 3 && x.dim(1) == w.value.dim(2),
           "[grouped_linear] x is ", x.shape(), " but ", w.name, " ", w.value.shape(),
           ": their last axes must be equal");
  AB_CHECK(x.dtype() == w.value.dtype(), "[grouped_linear] x is ", name_of(x.dtype()), " but ",
           w.name, " ", name_of(w.value.dtype()));
  check_groups("grouped_linear", groups, w.value.dim(0), x.dim(0));
  AB_CHECK(x.value().device().is_cpu(), "[grouped_linear] no kernel for this device in this build");
  Tensor y = x.value().like({x.dim(0), w.value.dim(1)}, x.dtype(), "grouped_linear");
  cpu::grouped_linear_forward(y, x.value(), w.value, groups);
  if (x.tape() == nullptr) return y;
  const auto backward = [x, &w, groups](Tape& t, const Tensor& dy) {
    if (t.wants(x)) {
      GradSink dx = t.grad(x);
      cpu::grouped_linear_backward(dx, dy, w.value, groups);
    }
    GradSink dw = t.grad(w);
    cpu::grouped_linear_weight_backward(dw, dy, x.value(), groups);
  };
  return x.tape()->record("grouped_linear", y, {&w}, backward);
}

}  // namespace anabranch
