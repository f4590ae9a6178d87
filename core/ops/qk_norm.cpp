#include "core/ops/qk_norm.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, Tensor& r, const Tensor& x, double eps) {
  if (x.device().is_cpu()) return cpu::qk_norm_forward(y, r, x, eps);
  if constexpr (build::kCuda) return cuda::qk_norm_forward(y, r, x, eps);
  AB_FAIL("[qk_norm] no kernel for this device in this build");
}

void backward(Tensor& dx, const Tensor& dy, const Tensor& y, const Tensor& r) {
  if (y.device().is_cpu()) return cpu::qk_norm_backward(dx, dy, y, r);
  if constexpr (build::kCuda) return cuda::qk_norm_backward(dx, dy, y, r);
  AB_FAIL("[qk_norm] no kernel for this device in this build");
}

}  // namespace

Var qk_norm(const Var& qkv, int64_t heads, double eps) {
  const Tensor& x = qkv.value();
  AB_CHECK(x.shape().rank() == 2 && heads > 0 && x.dim(1) % (3 * heads) == 0, "[qk_norm] qkv is ",
           x.shape(), ", not [N, 3C] with C a multiple of ", heads, " heads");
  Tensor y = x.like("qk_norm");
  Tensor r = x.like({x.dim(0), 2 * heads}, accumulator_of(x.dtype()), "qk_norm.r");
  forward(y, r, x, eps);
  if (qkv.tape() == nullptr) return y;
  const Var to({}, qkv.tape(), qkv.id());  // its value is not needed again
  return qkv.tape()->record_many("qk_norm", {y}, {}, [=](Tape& t, std::span<Tensor> dys) {
    if (!t.wants(to)) return;
    Tensor dx = dys[0].unique() ? dys[0] : dys[0].like("gradient");
    backward(dx, dys[0], y, r);
    t.give(to, dx);
  })[0];
}

}  // namespace anabranch
