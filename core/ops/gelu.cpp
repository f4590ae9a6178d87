#include "core/ops/gelu.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& x, GeluForm form) {
  if (x.device().is_cpu()) return cpu::gelu_forward(y, x, form);
  if constexpr (build::kCuda) return cuda::gelu_forward(y, x, form);
  AB_FAIL("[gelu] no kernel for this device in this build");
}

void backward(Tensor& dx, const Tensor& dy, const Tensor& x, GeluForm form) {
  if (x.device().is_cpu()) return cpu::gelu_backward(dx, dy, x, form);
  if constexpr (build::kCuda) return cuda::gelu_backward(dx, dy, x, form);
  AB_FAIL("[gelu] no kernel for this device in this build");
}

}  // namespace

Var gelu(const Var& x, GeluForm form) {
  Tensor y = x.value().like("gelu");
  forward(y, x.value(), form);
  if (x.tape() == nullptr) return y;
  return x.tape()->record_many("gelu", {y}, {}, [x, form](Tape& t, std::span<Tensor> dys) {
    if (!t.wants(x)) return;
    Tensor dx = dys[0].unique() ? dys[0] : dys[0].like("gradient");
    backward(dx, dys[0], x.value(), form);
    t.give(x, dx);
  })[0];
}

}  // namespace anabranch
