#include "core/ops/adamw.h"

#include "core/base/build.h"

namespace anabranch {

void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, Tensor* value,
           const AdamwStep& step) {
  const auto check = [&](const Tensor& t, DType type, const char* name) {
    AB_CHECK(t.count() == master.count() && t.dtype() == type, "[adamw] ", name, " is ",
             name_of(t.dtype()), t.shape(), " but needs ", name_of(type), master.shape());
  };
  check(master, accumulator_of(master.dtype()), "master");
  check(m, master.dtype(), "m");
  check(v, master.dtype(), "v");
  check(grad, master.dtype(), "grad");
  if (value != nullptr) check(*value, DType::kBF16, "value");
  AB_CHECK(step.step >= 1, "[adamw] step is ", step.step, " but counts from 1");
  if (master.device().is_cpu()) return cpu::adamw(master, m, v, grad, value, step);
  if constexpr (build::kCuda) return cuda::adamw(master, m, v, grad, value, step);
  AB_FAIL("[adamw] no kernel for this device in this build");
}

}  // namespace anabranch
