#include "core/ops/muon.h"

#include "core/base/build.h"
#include "core/ops/matrix_batch.h"

namespace anabranch {

int64_t muon(Tensor& master, Tensor& m, Tensor& s, const Tensor& grad, Tensor* value,
             const MuonStep& step, Tensor* rejected) {
  const MatrixBatch batch = matrix_batch("muon", master);
  check_matrix_state("muon", {master, m, grad, value}, step.compute);
  const int64_t axis = batch.longer();
  const Shape wanted = master.shape().rank() == 2 ? Shape{axis} : Shape{batch.count, axis};
  AB_CHECK(s.shape() == wanted && s.dtype() == master.dtype(), "[muon] s is ", name_of(s.dtype()),
           s.shape(), " but needs ", name_of(master.dtype()), wanted, " for master ",
           master.shape());
  if (master.device().is_cpu()) return cpu::muon(master, m, s, grad, value, step);
  AB_CHECK(rejected == nullptr || (rejected->count() == 1 && rejected->dtype() == DType::kF64),
           "[muon] rejected is ", name_of(rejected->dtype()), rejected->shape(),
           " but must be float64[1]");
  if constexpr (build::kCuda) {
    cuda::muon(master, m, s, grad, value, step, rejected);
    return 0;
  }
  AB_FAIL("[muon] no kernel for this device in this build");
}

}  // namespace anabranch
