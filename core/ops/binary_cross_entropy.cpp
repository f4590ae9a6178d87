#include "core/ops/binary_cross_entropy.h"

#include "core/tensor/element.h"

namespace anabranch {

Var binary_cross_entropy(const Var& logits, const Tensor& member) {
  const Tensor& z = logits.value();
  AB_CHECK(z.count() > 0 && z.dtype() == accumulator_of(z.dtype()),
           "[binary_cross_entropy] the logits are ", name_of(z.dtype()), z.shape(),
           " but must be float32 or float64, and not empty");
  AB_CHECK(member.shape() == z.shape() && member.dtype() == DType::kU8,
           "[binary_cross_entropy] membership is ", name_of(member.dtype()), member.shape(),
           " but the logits are ", z.shape(), "; it must be uint8");
  AB_CHECK(z.device().is_cpu(), "[binary_cross_entropy] no kernel for this device in this build");
  Tensor loss = z.like({1}, z.dtype(), "binary_cross_entropy");
  const double value = cpu::binary_cross_entropy_forward(z, member);
  set_element(loss, value);
  if (logits.tape() == nullptr) return loss;
  return logits.tape()->record("binary_cross_entropy", loss, {}, [=](Tape& t, const Tensor& dy) {
    GradSink dlogits = t.grad(logits);
    const double seed = element(dy);
    cpu::binary_cross_entropy_backward(dlogits, seed, logits.value(), member);
  });
}

}  // namespace anabranch
