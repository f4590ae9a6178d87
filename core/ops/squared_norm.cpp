#include "core/ops/squared_norm.h"

#include "core/base/build.h"
#include "core/tensor/element.h"

namespace anabranch {

double squared_norm(const Tensor& x) {
  if (x.device().is_cpu()) return cpu::squared_norm(x);
  Tensor sum = x.like({1}, DType::kF64, "squared_norm");
  squared_norm(sum, x);
  return element(sum);
}

void squared_norm(Tensor& to, const Tensor& x) {
  AB_CHECK(to.count() == 1 && to.dtype() == DType::kF64, "[squared_norm] the sum goes to ",
           name_of(to.dtype()), to.shape(), " but needs one float64");
  if (x.device().is_cpu()) return set_element(to, cpu::squared_norm(x));
  if constexpr (build::kCuda) return cuda::squared_norm(to, x);
  AB_FAIL("[squared_norm] no kernel for this device in this build");
}

}  // namespace anabranch
