#include "core/ops/gemm.h"
#include "core/ops/row_bias.cuh"

namespace anabranch::cuda {

void gemm(Tensor& c, const Tensor& a, const Tensor& b, const BlasProduct& p, const Tensor* bias) {
  dispatch(a.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Pool& pool = *a.pool();
    if (c.dtype() == a.dtype()) {
      gemm(pool, c.device_data<T>(), a.device_data<T>(), b.device_data<T>(), p);
    } else {
      gemm(pool, c.device_data<A>(), a.device_data<T>(), b.device_data<T>(), p);
    }
  });
  if (bias != nullptr) row_bias<false>(c, c, *bias);
}

}  // namespace anabranch::cuda
