#include "core/ops/softmax.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& p, const Tensor& logits) {
  if (p.device().is_cpu()) return cpu::softmax_forward(p, logits);
  if constexpr (build::kCuda) return cuda::softmax_forward(p, logits);
  AB_FAIL("[softmax] no kernel for this device in this build");
}

void backward(GradSink& dlogits, const Tensor& dp, const Tensor& p) {
  if (p.device().is_cpu()) return cpu::softmax_backward(dlogits, dp, p);
  if constexpr (build::kCuda) return cuda::softmax_backward(dlogits, dp, p);
  AB_FAIL("[softmax] no kernel for this device in this build");
}

}  // namespace

Var softmax(const Var& logits) {
  AB_CHECK(logits.shape().rank() >= 1 && logits.dtype() == accumulator_of(logits.dtype()),
           "[softmax] logits are ", name_of(logits.dtype()), logits.shape(),
           " but must be float32 or float64");
  Tensor p = logits.value().like("softmax");
  forward(p, logits.value());
  if (logits.tape() == nullptr) return p;
  return logits.tape()->record("softmax", p, {}, [logits, p](Tape& t, const Tensor& dp) {
    if (!t.wants(logits)) return;
    GradSink dlogits = t.grad(logits);
    backward(dlogits, dp, p);
  });
}

}  // namespace anabranch
