#include "core/ops/scale_gradient.h"

#include "core/base/build.h"

namespace anabranch {

void scale(Tensor& dx, const Tensor& dy, double factor) {
  if (dy.device().is_cpu()) return cpu::scale(dx, dy, factor);
  if constexpr (build::kCuda) return cuda::scale(dx, dy, factor);
  AB_FAIL("[scale_gradient] no kernel for this device in this build");
}

Var scale_gradient(const Var& x, double factor) {
  if (x.tape() == nullptr) return x;
  return x.tape()->record("scale_gradient", x.value(), {}, [x, factor](Tape& t, const Tensor& dy) {
    if (!t.wants(x)) return;
    Tensor dx = dy.like("gradient");
    scale(dx, dy, factor);
    t.give(x, dx);
  });
}

}  // namespace anabranch
