#include "core/ops/adaptive_gate.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& f, const Tensor& v, const Tensor& r) {
  if (f.device().is_cpu()) return cpu::adaptive_gate_forward(y, f, v, r);
  if constexpr (build::kCuda) return cuda::adaptive_gate_forward(y, f, v, r);
  AB_FAIL("[adaptive_gate] no kernel for this device in this build");
}

void backward(AdaptiveGradients& to, const Tensor& dy, const Tensor& f, const Tensor& v,
              const Tensor& r) {
  if (f.device().is_cpu()) return cpu::adaptive_gate_backward(to, dy, f, v, r);
  if constexpr (build::kCuda) return cuda::adaptive_gate_backward(to, dy, f, v, r);
  AB_FAIL("[adaptive_gate] no kernel for this device in this build");
}

}  // namespace

Var adaptive_gate(const Var& f, const Var& v, const Var& r) {
  const DType sums = accumulator_of(f.dtype());
  AB_CHECK(f.shape().rank() == 2 && v.shape() == f.shape() && v.dtype() == f.dtype(),
           "[adaptive_gate] f is ", name_of(f.dtype()), f.shape(), " but v is ", name_of(v.dtype()),
           v.shape());
  AB_CHECK(r.shape() == Shape({f.dim(0), 3}) && r.dtype() == sums, "[adaptive_gate] r is ",
           name_of(r.dtype()), r.shape(), " but needs ", name_of(sums), "[", f.dim(0), ", 3]");
  Tensor y = f.value().like("adaptive_gate");
  forward(y, f.value(), v.value(), r.value());
  Tape* tape = tape_of(f, v, r);
  if (tape == nullptr) return y;
  return tape->record("adaptive_gate", y, {}, [f, v, r](Tape& t, const Tensor& dy) {
    const auto buffer = [&t](const Var& x) {
      return t.wants(x) ? x.value().like("gradient") : Tensor();
    };
    AdaptiveGradients to{buffer(f), buffer(v), buffer(r)};
    backward(to, dy, f.value(), v.value(), r.value());
    t.give(f, to.df);
    t.give(v, to.dv);
    t.give(r, to.dr);
  });
}

}  // namespace anabranch
