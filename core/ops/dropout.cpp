#include "core/ops/dropout.h"

namespace anabranch {

Var dropout(const Var& x, double rate, DropoutKey key) {
  AB_CHECK(rate >= 0 && rate < 1, "[dropout] the rate is ", rate, " but must be in [0, 1)");
  AB_CHECK(x.shape().rank() >= 1 && key.first_row >= 0, "[dropout] x is ", x.shape(),
           " and its first row ", key.first_row, "; it needs an axis and a row >= 0");
  if (x.tape() == nullptr || rate == 0) return x;
  Tensor y = x.value().like("dropout");
  AB_CHECK(y.device().is_cpu(), "[dropout] no kernel for this device in this build");
  cpu::dropout(y, x.value(), rate, key);
  const Var to({}, x.tape(), x.id());  // its value is not needed again
  return x.tape()->record_many("dropout", {y}, {}, [=](Tape& t, std::span<Tensor> dys) {
    if (!t.wants(to)) return;
    Tensor dx = dys[0].unique() ? dys[0] : dys[0].like("gradient");
    cpu::dropout(dx, dys[0], rate, key);
    t.give(to, dx);
  })[0];
}

}  // namespace anabranch
