#include "core/ops/stream_balance.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& loss, Tensor& p, const Tensor& g) {
  if (g.device().is_cpu()) return cpu::stream_balance_forward(loss, p, g);
  if constexpr (build::kCuda) return cuda::stream_balance_forward(loss, p, g);
  AB_FAIL("[stream_balance] no kernel for this device in this build");
}

void backward(GradSink& dg, const Tensor& dloss, const Tensor& p) {
  if (p.device().is_cpu()) return cpu::stream_balance_backward(dg, dloss, p);
  if constexpr (build::kCuda) return cuda::stream_balance_backward(dg, dloss, p);
  AB_FAIL("[stream_balance] no kernel for this device in this build");
}

}  // namespace

Var stream_balance(const Var& g, int64_t sequences) {
  AB_CHECK(g.shape().rank() == 2 && sequences > 0 && g.dim(0) % sequences == 0,
           "[stream_balance] g is ", g.shape(), ", not [M, N] with M a multiple of ", sequences,
           " sequences");
  AB_CHECK(g.dtype() == accumulator_of(g.dtype()), "[stream_balance] g is ", name_of(g.dtype()));
  Tensor p = g.value().like({sequences, g.dim(1)}, DType::kF64, "stream loads");
  Tensor loss = g.value().like({1}, g.dtype(), "stream_balance");
  forward(loss, p, g.value());
  if (g.tape() == nullptr) return loss;
  return g.tape()->record("stream_balance", loss, {}, [g, p](Tape& t, const Tensor& dl) {
    if (!t.wants(g)) return;
    GradSink dg = t.grad(g);
    backward(dg, dl, p);
  });
}

}  // namespace anabranch
