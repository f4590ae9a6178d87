#include "core/ops/mean_square.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& w) {
  if (w.device().is_cpu()) return cpu::mean_square_forward(y, w);
  if constexpr (build::kCuda) return cuda::mean_square_forward(y, w);
  AB_FAIL("[mean_square] no kernel for this device in this build");
}

void backward(GradSink& dw, const Tensor& dy, const Tensor& w) {
  if (w.device().is_cpu()) return cpu::mean_square_backward(dw, dy, w);
  if constexpr (build::kCuda) return cuda::mean_square_backward(dw, dy, w);
  AB_FAIL("[mean_square] no kernel for this device in this build");
}

}  // namespace

Var mean_square(Tape* tape, Param& w) {
  const Tensor& value = w.value;
  AB_CHECK(value.count() > 0 && value.dtype() == accumulator_of(value.dtype()), "[mean_square] ",
           w.name, " is ", name_of(value.dtype()), value.shape(),
           " but must be float32 or float64, and not empty");
  Tensor y = value.like({1}, value.dtype(), "mean_square");
  forward(y, value);
  if (tape == nullptr) return y;
  return tape->record("mean_square", y, {&w}, [&w](Tape& t, const Tensor& dy) {
    GradSink dw = t.grad(w);
    backward(dw, dy, w.value);
  });
}

}  // namespace anabranch
