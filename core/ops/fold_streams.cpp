#include "core/ops/fold_streams.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void run(Tensor& to, const Tensor& from, int64_t streams, bool back) {
  if (from.device().is_cpu()) return cpu::fold_streams(to, from, streams, back);
  if constexpr (build::kCuda) return cuda::fold_streams(to, from, streams, back);
  AB_FAIL("[fold_streams] no kernel for this device in this build");
}

Var turned(const char* op, const Var& x, const Shape& shape, int64_t streams, bool back) {
  Tensor y = x.value().like(shape, x.dtype(), op);
  run(y, x.value(), streams, back);
  if (x.tape() == nullptr) return y;
  return x.tape()->record(op, y, {}, [x, streams, back](Tape& t, const Tensor& dy) {
    if (!t.wants(x)) return;
    Tensor dx = x.value().like("gradient");
    run(dx, dy, streams, !back);
    t.give(x, dx);
  });
}

}  // namespace

Var fold_streams(const Var& x, int64_t streams) {
  AB_CHECK(streams >= 1 && x.shape().rank() == 2 && x.dim(0) % streams == 0, "[fold_streams] x is ",
           x.shape(), ", not of ", streams, " streams");
  return turned("fold_streams", x, {x.dim(0) / streams, streams * x.dim(1)}, streams, false);
}

Var unfold_streams(const Var& x, int64_t streams) {
  AB_CHECK(streams >= 1 && x.shape().rank() == 2 && x.dim(1) % streams == 0,
           "[unfold_streams] x is ", x.shape(), ", not of ", streams, " streams");
  return turned("unfold_streams", x, {x.dim(0) * streams, x.dim(1) / streams}, streams, true);
}

}  // namespace anabranch
