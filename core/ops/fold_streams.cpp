#include "core/ops/fold_streams.h"

namespace anabranch {

Var fold_streams(const Var& x, int64_t streams) {
  AB_CHECK(streams >= 1 && x.shape().rank() == 2 && x.dim(0) % streams == 0, "[fold_streams] x is ",
           x.shape(), ", not of ", streams, " streams");
  AB_CHECK(x.value().device().is_cpu(), "[fold_streams] no kernel for this device in this build");
  Tensor y = x.value().like({x.dim(0) / streams, streams * x.dim(1)}, x.dtype(), "fold_streams");
  cpu::fold_streams(y, x.value(), streams, false);
  if (x.tape() == nullptr) return y;
  return x.tape()->record("fold_streams", y, {}, [x, streams](Tape& t, const Tensor& dy) {
    if (!t.wants(x)) return;
    Tensor dx = x.value().like("gradient");
    cpu::fold_streams(dx, dy, streams, true);
    t.give(x, dx);
  });
}

}  // namespace anabranch
