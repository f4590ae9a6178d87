#include "core/ops/softmax.h"

namespace anabranch {

Var softmax(const Var& logits) {
  AB_CHECK(logits.shape().rank() >= 1 && logits.dtype() == accumulator_of(logits.dtype()),
           "[softmax] logits are ", name_of(logits.dtype()), logits.shape(),
           " but must be float32 or float64");
  Tensor p = logits.value().like("softmax");
  AB_CHECK(p.device().is_cpu(), "[softmax] no kernel for this device in this build");
  cpu::softmax_forward(p, logits.value());
  if (logits.tape() == nullptr) return p;
  return logits.tape()->record("softmax", p, {}, [logits, p](Tape& t, const Tensor& dp) {
    if (!t.wants(logits)) return;
    GradSink dlogits = t.grad(logits);
    cpu::softmax_backward(dlogits, dp, p);
  });
}

}  // namespace anabranch
