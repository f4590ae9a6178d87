#include "core/ops/muon.h"

#include "core/ops/matrix_batch.h"

namespace anabranch {

int64_t muon(Tensor& master, Tensor& m, Tensor& s, const Tensor& grad, Tensor* value,
             const MuonStep& step) {
  const MatrixBatch batch = matrix_batch("muon", master);
  check_matrix_state("muon", {master, m, grad, value}, step.compute);
  const int64_t axis = batch.longer();
  const Shape wanted = master.shape().rank() == 2 ? Shape{axis} : Shape{batch.count, axis};
  AB_CHECK(s.shape() == wanted && s.dtype() == master.dtype(), "[muon] s is ", name_of(s.dtype()),
           s.shape(), " but needs ", name_of(master.dtype()), wanted, " for master ",
           master.shape());
  return cpu::muon(master, m, s, grad, value, step);
}

}  // namespace anabranch
