#include "core/ops/stream_gelu_mix.h"

#include <algorithm>

#include "core/base/build.h"
#include "core/ops/stream_tree.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& s, const Tensor& g, const Tensor& w, const Tensor& b) {
  if (s.device().is_cpu()) return cpu::stream_gelu_mix_forward(y, s, g, w, b);
  if constexpr (build::kCuda) return cuda::stream_gelu_mix_forward(y, s, g, w, b);
  AB_FAIL("[stream_gelu_mix] no kernel for this device in this build");
}

void backward(cpu::StreamGradients& to, const Tensor& dy, const Tensor& s, const Tensor& g,
              const Tensor& w, const Tensor& b) {
  if (s.dim(0) == 0) {  // no tile of rows writes these
    if (!to.dw.accumulate) to.dw.out.fill_zero();
    if (!to.db.accumulate) to.db.out.fill_zero();
    return;
  }
  if (s.device().is_cpu()) return cpu::stream_gelu_mix_backward(to, dy, s, g, w, b);
  if constexpr (build::kCuda) return cuda::stream_gelu_mix_backward(to, dy, s, g, w, b);
  AB_FAIL("[stream_gelu_mix] no kernel for this device in this build");
}

}  // namespace

// Forward: what stays in the cache until it is read. Backward: enough rows that adding a tile to dK
// moves little beside V.
int64_t cuda::stream_gelu_mix_rows(int64_t rows, int64_t columns, DType sums, bool backward) {
  constexpr int64_t kForwardBytes = int64_t{24} << 20U, kBackwardBytes = int64_t{96} << 20U;
  constexpr int64_t kLeastRows = 128, kMostRows = 16384;
  const int64_t bytes = backward ? kBackwardBytes : kForwardBytes;
  const int64_t fit = bytes / std::max<int64_t>(1, columns * size_of(sums));
  return std::min(rows, std::clamp(fit / kLeastRows * kLeastRows, kLeastRows, kMostRows));
}

Var stream_gelu_mix(const Var& s, const Var& g, Param& w, Param& b, SumType sums,
                    StreamOrder streams) {
  check_streams("stream_gelu_mix", s, g, w, b);
  if (streams == StreamOrder::kTree) {
    return stream_tree("stream_gelu_mix", s, g, w, b, cpu::stream_gelu_mix_forward,
                       cpu::stream_gelu_mix_backward);
  }
  const DType type = sums == SumType::kWide ? accumulator_of(s.dtype()) : s.dtype();
  Tensor y = s.value().like({s.dim(0), w.value.dim(1)}, type, "stream_gelu_mix");
  forward(y, s.value(), g.value(), w.value, b.value);
  return record_streams("stream_gelu_mix", y, s, g, w, b, backward);
}

}  // namespace anabranch
