#include "core/autograd/scale_gradient.h"

#include "core/ops/scalar_mix.h"

namespace anabranch {

Var scale_gradient(const Var& x, double factor) {
  if (x.tape() == nullptr) return x;
  return x.tape()->record("scale_gradient", x.value(), {}, [x, factor](Tape& t, const Tensor& dy) {
    Tensor dx = dy.like("gradient");
    cpu::weighted_sum(dx, {&dy, 1}, cpu::weights_of({&factor, 1}, dy), 0, 1);
    t.give(x, dx);
  });
}

}  // namespace anabranch
