#include "core/ops/grouped_linear.h"

#include "core/base/build.h"

namespace anabranch {

void grouped_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Groups& groups) {
  if (x.device().is_cpu()) return cpu::grouped_linear_forward(y, x, w, groups);
  if constexpr (build::kCuda) return cuda::grouped_linear_forward(y, x, w, groups);
  AB_FAIL("[grouped_linear] no kernel for this device in this build");
}

void grouped_linear_backward(GradSink& dx, const Tensor& dy, const Tensor& w,
                             const Groups& groups) {
  if (dy.device().is_cpu()) return cpu::grouped_linear_backward(dx, dy, w, groups);
  if constexpr (build::kCuda) return cuda::grouped_linear_backward(dx, dy, w, groups);
  AB_FAIL("[grouped_linear] no kernel for this device in this build");
}

void grouped_linear_weight_backward(GradSink& dw, const Tensor& dy, const Tensor& x,
                                    const Groups& groups) {
  if (dy.device().is_cpu()) return cpu::grouped_linear_weight_backward(dw, dy, x, groups);
  if constexpr (build::kCuda) return cuda::grouped_linear_weight_backward(dw, dy, x, groups);
  AB_FAIL("[grouped_linear] no kernel for this device in this build");
}

Var grouped_linear(const Var& x, Param& w, const Groups& groups) {
  AB_CHECK(x.shape().rank() == 2 && w.value.shape().rank() == 3 && x.dim(1) == w.value.dim(2),
           "[grouped_linear] x is ", x.shape(), " but ", w.name, " ", w.value.shape(),
           ": their last axes must be equal");
  AB_CHECK(x.dtype() == w.value.dtype(), "[grouped_linear] x is ", name_of(x.dtype()), " but ",
           w.name, " ", name_of(w.value.dtype()));
  check_groups("grouped_linear", groups, w.value.dim(0), x.dim(0));
  Tensor y = x.value().like({x.dim(0), w.value.dim(1)}, x.dtype(), "grouped_linear");
  grouped_linear_forward(y, x.value(), w.value, groups);
  if (x.tape() == nullptr) return y;
  const auto run = [x, &w, groups](Tape& t, const Tensor& dy) {
    if (t.wants(x)) {
      GradSink dx = t.grad(x);
      grouped_linear_backward(dx, dy, w.value, groups);
    }
    GradSink dw = t.grad(w);
    grouped_linear_weight_backward(dw, dy, x.value(), groups);
  };
  return x.tape()->record("grouped_linear", y, {&w}, run);
}

}  // namespace anabranch
