#include "core/ops/sigmoid_gate.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& a, const Tensor& b) {
  if (a.device().is_cpu()) return cpu::sigmoid_gate_forward(y, a, b);
  if constexpr (build::kCuda) return cuda::sigmoid_gate_forward(y, a, b);
  AB_FAIL("[sigmoid_gate] no kernel for this device in this build");
}

void backward(Tensor& da, Tensor& db, const Tensor& dy, const Tensor& a, const Tensor& b) {
  if (a.device().is_cpu()) return cpu::sigmoid_gate_backward(da, db, dy, a, b);
  if constexpr (build::kCuda) return cuda::sigmoid_gate_backward(da, db, dy, a, b);
  AB_FAIL("[sigmoid_gate] no kernel for this device in this build");
}

}  // namespace

Var sigmoid_gate(const Var& a, const Var& b) {
  AB_CHECK(a.shape() == b.shape() && a.dtype() == b.dtype(), "[sigmoid_gate] a is ",
           name_of(a.dtype()), a.shape(), " but b is ", name_of(b.dtype()), b.shape());
  Tensor y = a.value().like("sigmoid_gate");
  forward(y, a.value(), b.value());
  Tape* tape = tape_of(a, b);
  if (tape == nullptr) return y;
  return tape->record("sigmoid_gate", y, {}, [a, b](Tape& t, const Tensor& dy) {
    // Buffers of their own: a and b may be one Var.
    Tensor da = t.wants(a) ? dy.like("gradient") : Tensor();
    Tensor db = t.wants(b) ? dy.like("gradient") : Tensor();
    backward(da, db, dy, a.value(), b.value());
    t.give(a, da);
    t.give(b, db);
  });
}

}  // namespace anabranch
