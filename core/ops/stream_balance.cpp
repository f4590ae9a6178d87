#include "core/ops/stream_balance.h"

#include "core/tensor/element.h"

namespace anabranch {

Var stream_balance(const Var& g, int64_t sequences) {
  AB_CHECK(g.shape().rank() == 2 && sequences > 0 && g.dim(0) % sequences == 0,
           "[stream_balance] g is ", g.shape(), ", not [M, N] with M a multiple of ", sequences,
           " sequences");
  AB_CHECK(g.dtype() == accumulator_of(g.dtype()), "[stream_balance] g is ", name_of(g.dtype()));
  AB_CHECK(g.value().device().is_cpu(), "[stream_balance] no kernel for this device in this build");
  Tensor p = g.value().like({sequences, g.dim(1)}, DType::kF64, "stream loads");
  Tensor loss = g.value().like({1}, g.dtype(), "stream_balance");
  const double value = cpu::stream_balance_forward(p, g.value());
  set_element(loss, value);
  if (g.tape() == nullptr) return loss;
  return g.tape()->record("stream_balance", loss, {}, [g, p](Tape& t, const Tensor& dl) {
    if (!t.wants(g)) return;
    GradSink dg = t.grad(g);
    cpu::stream_balance_backward(dg, element(dl), p);
  });
}

}  // namespace anabranch
