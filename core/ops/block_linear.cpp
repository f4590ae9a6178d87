#include "core/ops/block_linear.h"

#include "core/base/build.h"
#include "core/ops/linear.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias) {
  if (x.device().is_cpu()) return cpu::block_linear_forward(y, x, w, bias);
  if constexpr (build::kCuda) return cuda::block_linear_forward(y, x, w, bias);
  AB_FAIL("[block_linear] no kernel for this device in this build");
}

void backward(Tensor& dx, GradSink& dw, const Tensor& dy, const Tensor& x, const Tensor& w) {
  if (x.device().is_cpu()) return cpu::block_linear_backward(dx, dw, dy, x, w);
  if constexpr (build::kCuda) return cuda::block_linear_backward(dx, dw, dy, x, w);
  AB_FAIL("[block_linear] no kernel for this device in this build");
}

}  // namespace

Var block_linear(const Var& x, Param& w, Param& bias) {
  const Shape& s = w.value.shape();
  AB_CHECK(x.shape().rank() == 2 && s.rank() == 3 && s[1] == s[2] && s[0] * s[1] == x.dim(1),
           "[block_linear] x is ", x.shape(), " but w ", s, "; expected [N, H * D] and [H, D, D]");
  AB_CHECK(w.value.dtype() == x.dtype() && bias.value.count() == x.dim(1) &&
               bias.value.dtype() == accumulator_of(x.dtype()),
           "[block_linear] x is ", name_of(x.dtype()), ", w ", name_of(w.value.dtype()), ", bias ",
           name_of(bias.value.dtype()), bias.value.shape());
  Tensor y = x.value().like("block_linear");
  forward(y, x.value(), w.value, bias.value);
  if (x.tape() == nullptr) return y;
  return x.tape()->record("block_linear", y, {&w, &bias},
                          [x, &w, &bias](Tape& t, const Tensor& dy) {
                            Tensor dx = t.wants(x) ? dy.like("gradient") : Tensor();
                            GradSink dw = t.grad(w), db = t.grad(bias);
                            backward(dx, dw, dy, x.value(), w.value);
                            bias_gradient(db, dy);
                            t.give(x, dx);
                          });
}

}  // namespace anabranch
