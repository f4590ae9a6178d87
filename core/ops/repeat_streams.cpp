#include "core/ops/repeat_streams.h"

namespace anabranch {

Var repeat_streams(const Var& x, int64_t streams) {
  AB_CHECK(streams >= 1 && x.shape().rank() == 2, "[repeat_streams] ", streams, " streams of x ",
           x.shape());
  AB_CHECK(x.value().device().is_cpu(), "[repeat_streams] no kernel for this device in this build");
  if (streams == 1) return x;
  const int64_t count = x.value().count();
  Tensor y = x.value().like({streams * x.dim(0), x.dim(1)}, x.dtype(), "repeat_streams");
  for (int64_t p = 0; p < streams; ++p) y.view(p * count, x.shape()).copy_from(x.value());
  if (x.tape() == nullptr) return y;
  return x.tape()->record("repeat_streams", y, {}, [x](Tape& t, const Tensor& dy) {
    if (!t.wants(x)) return;
    Tensor dx = x.value().like("gradient");
    cpu::sum_streams(dx, dy);
    t.give(x, dx);
  });
}

}  // namespace anabranch
