#include "core/ops/binary_cross_entropy.h"

#include "core/base/build.h"
#include "core/tensor/element.h"

namespace anabranch {
namespace {

void forward(Tensor& loss, const Tensor& logits, const Tensor& member) {
  if (logits.device().is_cpu()) {
    return set_element(loss, cpu::binary_cross_entropy_forward(logits, member));
  }
  if constexpr (build::kCuda) return cuda::binary_cross_entropy_forward(loss, logits, member);
  AB_FAIL("[binary_cross_entropy] no kernel for this device in this build");
}

void backward(GradSink& dlogits, const Tensor& dloss, const Tensor& logits, const Tensor& member) {
  if (logits.device().is_cpu()) {
    return cpu::binary_cross_entropy_backward(dlogits, element(dloss), logits, member);
  }
  if constexpr (build::kCuda) {
    return cuda::binary_cross_entropy_backward(dlogits, dloss, logits, member);
  }
  AB_FAIL("[binary_cross_entropy] no kernel for this device in this build");
}

}  // namespace

Var binary_cross_entropy(const Var& logits, const Tensor& member) {
  const Tensor& z = logits.value();
  AB_CHECK(z.count() > 0 && z.dtype() == accumulator_of(z.dtype()),
           "[binary_cross_entropy] the logits are ", name_of(z.dtype()), z.shape(),
           " but must be float32 or float64, and not empty");
  AB_CHECK(member.shape() == z.shape() && member.dtype() == DType::kU8,
           "[binary_cross_entropy] membership is ", name_of(member.dtype()), member.shape(),
           " but the logits are ", z.shape(), "; it must be uint8");
  Tensor loss = z.like({1}, z.dtype(), "binary_cross_entropy");
  forward(loss, z, member);
  if (logits.tape() == nullptr) return loss;
  return logits.tape()->record("binary_cross_entropy", loss, {}, [=](Tape& t, const Tensor& dy) {
    GradSink dlogits = t.grad(logits);
    backward(dlogits, dy, logits.value(), member);
  });
}

}  // namespace anabranch
