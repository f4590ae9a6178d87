#include "core/ops/repeat_streams.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void repeat(Tensor& y, const Tensor& x) {
  if (x.device().is_cpu()) return cpu::repeat_streams(y, x);
  if constexpr (build::kCuda) return cuda::repeat_streams(y, x);
  AB_FAIL("[repeat_streams] no kernel for this device in this build");
}

void sum(Tensor& dx, const Tensor& dy) {
  if (dy.device().is_cpu()) return cpu::sum_streams(dx, dy);
  if constexpr (build::kCuda) return cuda::sum_streams(dx, dy);
  AB_FAIL("[repeat_streams] no kernel for this device in this build");
}

}  // namespace

Var repeat_streams(const Var& x, int64_t streams) {
  AB_CHECK(streams >= 1 && x.shape().rank() == 2, "[repeat_streams] ", streams, " streams of x ",
           x.shape());
  if (streams == 1) return x;
  Tensor y = x.value().like({streams * x.dim(0), x.dim(1)}, x.dtype(), "repeat_streams");
  repeat(y, x.value());
  if (x.tape() == nullptr) return y;
  return x.tape()->record("repeat_streams", y, {}, [x](Tape& t, const Tensor& dy) {
    if (!t.wants(x)) return;
    Tensor dx = x.value().like("gradient");
    sum(dx, dy);
    t.give(x, dx);
  });
}

}  // namespace anabranch
