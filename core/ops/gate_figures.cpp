#include "core/ops/gate_figures.h"

#include "core/base/build.h"
#include "core/base/error.h"

namespace anabranch {

void gate_figures(Tensor& to, const Tensor& gates) {
  AB_CHECK(gates.shape().rank() == 2 && to.dtype() == DType::kF64 &&
               (to.count() == gates.dim(1) || to.count() == 2 * gates.dim(1) + 1),
           "[gate_figures] to is ", name_of(to.dtype()), to.shape(), " for gates ", gates.shape(),
           "; expected float64 [N] or [2N + 1] for [M, N]");
  if (gates.device().is_cpu()) return cpu::gate_figures(to, gates);
  if constexpr (build::kCuda) return cuda::gate_figures(to, gates);
  AB_FAIL("[gate_figures] no kernel for this device in this build");
}

}  // namespace anabranch
