#include "core/ops/sigmoid_gate.h"

namespace anabranch {

Var sigmoid_gate(const Var& a, const Var& b) {
  AB_CHECK(a.shape() == b.shape() && a.dtype() == b.dtype(), "[sigmoid_gate] a is ",
           name_of(a.dtype()), a.shape(), " but b is ", name_of(b.dtype()), b.shape());
  Tensor y = a.value().like("sigmoid_gate");
  AB_CHECK(y.device().is_cpu(), "[sigmoid_gate] no kernel for this device in this build");
  cpu::sigmoid_gate_forward(y, a.value(), b.value());
  Tape* tape = tape_of(a, b);
  if (tape == nullptr) return y;
  return tape->record("sigmoid_gate", y, {}, [a, b](Tape& t, const Tensor& dy) {
    // Buffers of their own: a and b may be one Var.
    Tensor da = t.wants(a) ? dy.like("gradient") : Tensor();
    Tensor db = t.wants(b) ? dy.like("gradient") : Tensor();
    cpu::sigmoid_gate_backward(da, db, dy, a.value(), b.value());
    t.give(a, da);
    t.give(b, db);
  });
}

}  // namespace anabranch
