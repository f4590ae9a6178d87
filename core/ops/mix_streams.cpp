#include "core/ops/mix_streams.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& h, const Tensor& a, double smoothing) {
  if (h.device().is_cpu()) return cpu::mix_streams_forward(y, h, a, smoothing);
  if constexpr (build::kCuda) return cuda::mix_streams_forward(y, h, a, smoothing);
  AB_FAIL("[mix_streams] no kernel for this device in this build");
}

void backward(Tensor& dh, Tensor& da, const Tensor& dy, const Tensor& h, const Tensor& a,
              double smoothing) {
  if (h.device().is_cpu()) return cpu::mix_streams_backward(dh, da, dy, h, a, smoothing);
  if constexpr (build::kCuda) return cuda::mix_streams_backward(dh, da, dy, h, a, smoothing);
  AB_FAIL("[mix_streams] no kernel for this device in this build");
}

Var mix(const Var& h, const Var& a, int64_t streams, double smoothing) {
  Tensor y = h.value().like({h.dim(0), h.dim(1) / streams}, h.dtype(), "mix_streams");
  forward(y, h.value(), a.value(), smoothing);
  Tape* tape = tape_of(h, a);
  if (tape == nullptr) return y;
  return tape->record("mix_streams", y, {}, [h, a, smoothing](Tape& t, const Tensor& dy) {
    Tensor dh = h.value().like("gradient");
    Tensor da = t.wants(a) ? a.value().like("gradient") : Tensor();
    backward(dh, da, dy, h.value(), a.value(), smoothing);
    t.give(h, dh);
    t.give(a, da);
  });
}

}  // namespace

Var mix_streams(const Var& h, const Var& a, double smoothing) {
  const DType sums = accumulator_of(h.dtype());
  AB_CHECK(h.shape().rank() == 2 && a.shape().rank() == 2 && a.dim(0) == h.dim(0) &&
               h.dim(1) % a.dim(1) == 0 && a.dtype() == sums,
           "[mix_streams] h is ", h.shape(), " but a ", name_of(a.dtype()), a.shape(),
           "; expected [rows, P * C] and ", name_of(sums), "[rows, P]");
  return mix(h, a, a.dim(1), smoothing);
}

Var mean_streams(const Var& h, int64_t streams) {
  AB_CHECK(h.shape().rank() == 2 && streams >= 1 && h.dim(1) % streams == 0, "[mean_streams] h is ",
           h.shape(), ", not of ", streams, " streams");
  return mix(h, Var(), streams, 1);
}

}  // namespace anabranch
