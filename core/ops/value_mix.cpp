#include "core/ops/value_mix.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& qkv, const Tensor& e, const Tensor& logits) {
  if (y.device().is_cpu()) return cpu::value_mix_forward(y, qkv, e, logits);
  if constexpr (build::kCuda) return cuda::value_mix_forward(y, qkv, e, logits);
  AB_FAIL("[value_mix] no kernel for this device in this build");
}

void backward(Tensor& de, Tensor& dlogits, const Tensor& dy, const Tensor& e,
              const Tensor& logits) {
  if (dy.device().is_cpu()) return cpu::value_mix_backward(de, dlogits, dy, e, logits);
  if constexpr (build::kCuda) return cuda::value_mix_backward(de, dlogits, dy, e, logits);
  AB_FAIL("[value_mix] no kernel for this device in this build");
}

}  // namespace

Var value_mix(const Var& qkv, const Var& e, const Var& logits) {
  const Tensor& x = qkv.value();
  AB_CHECK(x.shape().rank() == 2 && e.shape().rank() == 2 && x.dim(1) == 3 * e.dim(1) &&
               e.dim(0) == x.dim(0) && e.dtype() == x.dtype(),
           "[value_mix] qkv is ", name_of(x.dtype()), x.shape(), " but e ", name_of(e.dtype()),
           e.shape());
  AB_CHECK(logits.shape().rank() == 2 && logits.dim(0) == x.dim(0) && logits.dim(1) > 0 &&
               e.dim(1) % logits.dim(1) == 0 && logits.dtype() == accumulator_of(x.dtype()),
           "[value_mix] the logits are ", name_of(logits.dtype()), logits.shape(), " for e ",
           e.shape(), " but need a column for each head, in ", name_of(accumulator_of(x.dtype())));
  Tensor y = x.like("value_mix");
  forward(y, x, e.value(), logits.value());
  Tape* tape = tape_of(qkv, e, logits);
  if (tape == nullptr) return y;
  const Var to({}, qkv.tape(), qkv.id());  // its value is not needed again
  return tape->record("value_mix", y, {}, [to, e, logits](Tape& t, const Tensor& dy) {
    Tensor de = e.value().like("gradient"), dlogits = logits.value().like("gradient");
    backward(de, dlogits, dy, e.value(), logits.value());
    if (t.wants(e)) t.give(e, de);
    if (t.wants(logits)) t.give(logits, dlogits);
    if (t.wants(to)) t.give(to, dy);
  });
}

}  // namespace anabranch
