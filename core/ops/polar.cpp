#include "core/ops/polar.h"

#include "core/base/build.h"
#include "core/ops/matrix_batch.h"

namespace anabranch {

PolarForm PolarForm::simple_quintic(int iterations) {
  AB_CHECK(iterations >= 0, "[polar] ", iterations, " iterations");
  return {std::vector<Iteration>(static_cast<size_t>(iterations), {2, -1.5, 0.5}), 1, 1e-7};
}

PolarForm PolarForm::polar_express() {
  return {{{8.156554524902461, -22.48329292557795, 15.878769915207462},
           {4.042929935166739, -2.808917465908714, 0.5000178451051316},
           {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
           {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
           {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
          1.02,
          1e-6};
}

PolarForm PolarForm::quintic_2025() {
  return {std::vector<Iteration>(5, {3.4445, -4.7750, 2.0315}), 1, 1e-7};
}

void polar(Tensor& out, const Tensor& in, DType compute, const PolarForm& form) {
  matrix_batch("polar", in);
  AB_CHECK(in.dtype() == accumulator_of(in.dtype()) && out.dtype() == in.dtype() &&
               out.shape() == in.shape(),
           "[polar] in is ", name_of(in.dtype()), in.shape(), ", out ", name_of(out.dtype()),
           out.shape(), " but both must be float32 or float64, of one shape");
  AB_CHECK(accumulator_of(compute) == in.dtype(), "[polar] cannot compute in ", name_of(compute),
           " beside ", name_of(in.dtype()));
  if (in.device().is_cpu()) return cpu::polar(out, in, compute, form);
  if constexpr (build::kCuda) return cuda::polar(out, in, compute, form);
  AB_FAIL("[polar] no kernel for this device in this build");
}

}  // namespace anabranch
