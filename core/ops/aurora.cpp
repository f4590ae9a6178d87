#include "core/ops/aurora.h"

#include "core/ops/matrix_batch.h"

namespace anabranch {

int64_t aurora(Tensor& master, Tensor& m, const Tensor& grad, Tensor* value,
               const AuroraStep& step) {
  matrix_batch("aurora", master);
  check_matrix_state("aurora", {master, m, grad, value}, step.compute);
  AB_CHECK(step.iterations >= 1, "[aurora] iterations is ", step.iterations,
           " but must be at least 1");
  return cpu::aurora(master, m, grad, value, step);
}

}  // namespace anabranch
