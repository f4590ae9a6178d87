#include "core/ops/squared_norm.h"

namespace anabranch {

double squared_norm(const Tensor& x) {
  AB_CHECK(x.device().is_cpu(), "[squared_norm] no kernel for this device in this build");
  return cpu::squared_norm(x);
}

}  // namespace anabranch
