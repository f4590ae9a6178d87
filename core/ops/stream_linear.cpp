#include "core/ops/stream_linear.h"

#include <algorithm>

#include "core/base/build.h"
#include "core/ops/stream_tree.h"

namespace anabranch {
namespace {

void forward(Tensor& u, const Tensor& s, const Tensor& g, const Tensor& w, const Tensor& b,
             MixOrder order) {
  if (s.device().is_cpu()) return cpu::stream_linear_forward(u, s, g, w, b, order);
  if constexpr (build::kCuda) return cuda::stream_linear_forward(u, s, g, w, b, order);
  AB_FAIL("[stream_linear] no kernel for this device in this build");
}

void backward(cpu::StreamGradients& to, const Tensor& du, const Tensor& s, const Tensor& g,
              const Tensor& w, const Tensor& b) {
  if (s.device().is_cpu()) return cpu::stream_linear_backward(to, du, s, g, w, b);
  if constexpr (build::kCuda) return cuda::stream_linear_backward(to, du, s, g, w, b);
  AB_FAIL("[stream_linear] no kernel for this device in this build");
}

}  // namespace

void check_streams(const char* op, const Var& s, const Var& g, const Param& w, const Param& b) {
  const DType sums = accumulator_of(s.dtype());
  AB_CHECK(s.shape().rank() == 2 && w.value.shape().rank() == 3 && w.value.dim(2) == s.dim(1), "[",
           op, "] s is ", s.shape(), " but w ", w.value.shape(), "; expected [M, C] and [N, F, C]");
  AB_CHECK(g.shape() == Shape({s.dim(0), w.value.dim(0)}) && g.dtype() == sums, "[", op, "] g is ",
           name_of(g.dtype()), g.shape(), " but needs ", name_of(sums), "[", s.dim(0), ", ",
           w.value.dim(0), "]");
  AB_CHECK(b.value.shape() == Shape({w.value.dim(0), w.value.dim(1)}) && b.value.dtype() == sums,
           "[", op, "] b is ", name_of(b.value.dtype()), b.value.shape(), " beside w ",
           w.value.shape());
  AB_CHECK(w.value.dtype() == s.dtype(), "[", op, "] s is ", name_of(s.dtype()), " but w ",
           name_of(w.value.dtype()));
}

Var record_streams(const char* op, const Tensor& y, const Var& s, const Var& g, Param& w, Param& b,
                   cpu::StreamBackward backward) {
  Tape* tape = tape_of(s, g);
  if (tape == nullptr) return y;
  return tape->record(op, y, {&w, &b}, [s, g, &w, &b, backward](Tape& t, const Tensor& dy) {
    GradSink ds{}, dg{};
    if (t.wants(s)) ds = t.grad(s);
    if (t.wants(g)) dg = t.grad(g);
    cpu::StreamGradients to{t.wants(s) ? &ds : nullptr, t.wants(g) ? &dg : nullptr, t.grad(w),
                            t.grad(b)};
    backward(to, dy, s.value(), g.value(), w.value, b.value);
  });
}

// Enough rows that adding a tile to dK moves little beside them, few enough to take little memory.
int64_t cuda::stream_linear_rows(int64_t rows, int64_t columns, DType type) {
  constexpr int64_t kTileBytes = int64_t{96} << 20U, kLeastRows = 128, kMostRows = 8192;
  const int64_t fit = kTileBytes / std::max<int64_t>(1, columns * size_of(type));
  return std::min(rows, std::clamp(fit / kLeastRows * kLeastRows, kLeastRows, kMostRows));
}

Var stream_linear(const Var& s, const Var& g, Param& w, Param& b, MixOrder order, SumType sums,
                  StreamOrder streams) {
  check_streams("stream_linear", s, g, w, b);
  if (streams == StreamOrder::kTree) {
    const auto of_one = [order](Tensor& u, const Tensor& rows, const Tensor& gates,
                                const Tensor& kernels, const Tensor& biases) {
      forward(u, rows, gates, kernels, biases, order);
    };
    return stream_tree("stream_linear", s, g, w, b, of_one, backward);
  }
  const DType type = sums == SumType::kWide ? accumulator_of(s.dtype()) : s.dtype();
  Tensor u = s.value().like({s.dim(0), w.value.dim(1)}, type, "stream_linear");
  forward(u, s.value(), g.value(), w.value, b.value, order);
  return record_streams("stream_linear", u, s, g, w, b, backward);
}

}  // namespace anabranch
