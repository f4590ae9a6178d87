// What the update of AdamW multiplies with, for both devices' kernels.
#pragma once

#include <cmath>

#include "core/ops/adamw.h"

namespace anabranch {

//   m += (g - m) new_m,   v = v beta2 + g^2 new_v,
//   p = p kept - rate m / (sqrt(v) root_correction + eps),   g the gradient times grad_scale
template <class A>
struct AdamwFactors {
  A kept, rate, new_m, beta2, new_v, eps, root_correction, grad_scale;

  explicit AdamwFactors(const AdamwStep& s)
      : kept(A(1 - s.lr * s.weight_decay)),
        rate(A(s.lr / (1 - std::pow(s.beta1, static_cast<double>(s.step))))),
        new_m(A(1 - s.beta1)),
        beta2(A(s.beta2)),
        new_v(A(1 - s.beta2)),
        eps(A(s.eps)),
        root_correction(A(1 / std::sqrt(1 - std::pow(s.beta2, static_cast<double>(s.step))))),
        grad_scale(A(s.grad_scale)) {}
};

}  // namespace anabranch
