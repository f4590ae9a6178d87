#include "core/ops/swiglu.h"

#include <vector>

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& x) {
  if (x.device().is_cpu()) return cpu::swiglu_forward(y, x);
  if constexpr (build::kCuda) return cuda::swiglu_forward(y, x);
  AB_FAIL("[swiglu] no kernel for this device in this build");
}

void backward(GradSink& dx, const Tensor& dy, const Tensor& x) {
  if (x.device().is_cpu()) return cpu::swiglu_backward(dx, dy, x);
  if constexpr (build::kCuda) return cuda::swiglu_backward(dx, dy, x);
  AB_FAIL("[swiglu] no kernel for this device in this build");
}

}  // namespace

Var swiglu(const Var& x) {
  AB_CHECK(x.shape().rank() >= 1 && x.dim(-1) % 2 == 0, "[swiglu] x is ", x.shape(),
           " but its last axis must hold gate and up, of equal width");
  std::vector<int64_t> extents(x.shape().begin(), x.shape().end());
  extents.back() /= 2;
  Tensor y = x.value().like(Shape(extents.begin(), extents.end()), x.dtype(), "swiglu");
  forward(y, x.value());
  if (x.tape() == nullptr) return y;
  return x.tape()->record("swiglu", y, {}, [x](Tape& t, const Tensor& dy) {
    if (!t.wants(x)) return;
    GradSink dx = t.grad(x);
    backward(dx, dy, x.value());
  });
}

}  // namespace anabranch
