#include "core/ops/qk_norm.h"

namespace anabranch {

Var qk_norm(const Var& qkv, int64_t heads, double eps) {
  const Tensor& x = qkv.value();
  AB_CHECK(x.shape().rank() == 2 && heads > 0 && x.dim(1) % (3 * heads) == 0, "[qk_norm] qkv is ",
           x.shape(), ", not [N, 3C] with C a multiple of ", heads, " heads");
  AB_CHECK(x.device().is_cpu(), "[qk_norm] no kernel for this device in this build");
  Tensor y = x.like("qk_norm");
  Tensor r = x.like({x.dim(0), 2 * heads}, accumulator_of(x.dtype()), "qk_norm.r");
  cpu::qk_norm_forward(y, r, x, eps);
  if (qkv.tape() == nullptr) return y;
  const Var to({}, qkv.tape(), qkv.id());  // its value is not needed again
  return qkv.tape()->record_many("qk_norm", {y}, {}, [=](Tape& t, std::span<Tensor> dys) {
    if (!t.wants(to)) return;
    Tensor dx = dys[0].unique() ? dys[0] : dys[0].like("gradient");
    cpu::qk_norm_backward(dx, dys[0], y, r);
    t.give(to, dx);
  })[0];
}

}  // namespace anabranch
