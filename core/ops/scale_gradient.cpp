#include "core/ops/scale_gradient.h"

namespace anabranch {

Var scale_gradient(const Var& x, double factor) {
  if (x.tape() == nullptr) return x;
  AB_CHECK(x.value().device().is_cpu(), "[scale_gradient] no kernel for this device in this build");
  return x.tape()->record("scale_gradient", x.value(), {}, [x, factor](Tape& t, const Tensor& dy) {
    if (!t.wants(x)) return;
    Tensor dx = dy.like("gradient");
    cpu::scale(dx, dy, factor);
    t.give(x, dx);
  });
}

}  // namespace anabranch
