#include "core/ops/dropout.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

// y = mask * x
void run(Tensor& y, const Tensor& x, double rate, DropoutKey key) {
  if (x.device().is_cpu()) return cpu::dropout(y, x, rate, key);
  if constexpr (build::kCuda) return cuda::dropout(y, x, rate, key);
  AB_FAIL("[dropout] no kernel for this device in this build");
}

}  // namespace

Var dropout(const Var& x, double rate, DropoutKey key) {
  AB_CHECK(rate >= 0 && rate < 1, "[dropout] the rate is ", rate, " but must be in [0, 1)");
  AB_CHECK(x.shape().rank() >= 1 && key.first_row >= 0, "[dropout] x is ", x.shape(),
           " and its first row ", key.first_row, "; it needs an axis and a row >= 0");
  if (x.tape() == nullptr || rate == 0) return x;
  Tensor y = x.value().like("dropout");
  run(y, x.value(), rate, key);
  const Var to({}, x.tape(), x.id());  // its value is not needed again
  return x.tape()->record_many("dropout", {y}, {}, [=](Tape& t, std::span<Tensor> dys) {
    if (!t.wants(to)) return;
    Tensor dx = dys[0].unique() ? dys[0] : dys[0].like("gradient");
    run(dx, dys[0], rate, key);
    t.give(to, dx);
  })[0];
}

}  // namespace anabranch
