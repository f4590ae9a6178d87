#include "core/ops/mean_square.h"

#include "core/tensor/element.h"

namespace anabranch {

Var mean_square(Tape* tape, Param& w) {
  const Tensor& value = w.value;
  AB_CHECK(value.count() > 0 && value.dtype() == accumulator_of(value.dtype()), "[mean_square] ",
           w.name, " is ", name_of(value.dtype()), value.shape(),
           " but must be float32 or float64, and not empty");
  AB_CHECK(value.device().is_cpu(), "[mean_square] no kernel for this device in this build");
  Tensor y = value.like({1}, value.dtype(), "mean_square");
  const double mean = cpu::mean_square(value);
  set_element(y, mean);
  if (tape == nullptr) return y;
  return tape->record("mean_square", y, {&w}, [&w](Tape& t, const Tensor& dy) {
    const double seed = element(dy);
    GradSink dw = t.grad(w);
    cpu::add_multiple(dw, seed * 2 / static_cast<double>(w.value.count()), w.value);
  });
}

}  // namespace anabranch
