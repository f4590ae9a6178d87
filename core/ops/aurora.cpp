#include "core/ops/aurora.h"

#include "core/base/build.h"
#include "core/ops/matrix_batch.h"

namespace anabranch {

int64_t aurora(Tensor& master, Tensor& m, const Tensor& grad, Tensor* value, const AuroraStep& step,
               Tensor* rejected) {
  matrix_batch("aurora", master);
  check_matrix_state("aurora", {master, m, grad, value}, step.compute);
  AB_CHECK(step.iterations >= 1, "[aurora] iterations is ", step.iterations,
           " but must be at least 1");
  if (master.device().is_cpu()) return cpu::aurora(master, m, grad, value, step);
  AB_CHECK(rejected == nullptr || (rejected->count() == 1 && rejected->dtype() == DType::kF64),
           "[aurora] rejected is ", name_of(rejected->dtype()), rejected->shape(),
           " but must be float64[1]");
  if constexpr (build::kCuda) {
    cuda::aurora(master, m, grad, value, step, rejected);
    return 0;
  }
  AB_FAIL("[aurora] no kernel for this device in this build");
}

}  // namespace anabranch
