#include "core/ops/column_sums.cuh"
#include "core/ops/gemm.h"
#include "core/ops/linear.h"
#include "core/ops/row_bias.cuh"

namespace anabranch::cuda {
namespace {

template <class T>
struct GeluBackward {
  T* dh;            // [rows, width]; may be dy
  const T *dy, *h;  // [rows, width]; h: without the bias
  const Accumulator<T>* bias;
  Accumulator<T>* partials;  // [blocks, width]
  int64_t rows, per_block, width;
};

// dh = dy gelu'(h + bias), and its sum over a block of rows: a thread has kN columns of each
// kColumnGroups-th row, kAtOnce of them under way at once. Moves dh, dy and h once.
template <class T, int kN>
__global__ void __launch_bounds__(kColumnThreads* kColumnGroups)
    gelu_backward_kernel(GeluBackward<T> k) {
  using A = Accumulator<T>;
  constexpr int kAtOnce = 2;
  const int64_t first_column = int64_t{blockIdx.y} * (kColumnThreads * kN);
  const int64_t column = first_column + threadIdx.x * kN;
  const int64_t begin = int64_t{blockIdx.x} * k.per_block;
  const int64_t end = begin + k.per_block < k.rows ? begin + k.per_block : k.rows;
  Pack<A, kN> sums{}, bias{};
  if (column < k.width) bias = load<kN>(k.bias + column);
  for (int64_t first = begin + threadIdx.y; first < end && column < k.width;
       first += kColumnGroups * kAtOnce) {
    Pack<T, kN> dys[kAtOnce], hs[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t row = first + i * kColumnGroups;
      if (row >= end) continue;
      dys[i] = load<kN>(k.dy + row * k.width + column);
      hs[i] = load<kN>(k.h + row * k.width + column);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t row = first + i * kColumnGroups;
      if (row >= end) continue;
      Pack<T, kN> dh;
      for (int j = 0; j < kN; ++j) {
        const A d = wide(dys[i].v[j]) * gelu_tanh(wide(hs[i].v[j]) + bias.v[j]).slope;
        sums.v[j] += d;
        dh.v[j] = narrow<T>(d);
      }
      store(k.dh + row * k.width + column, dh);
    }
  }
  add_groups<kN>(k.partials + int64_t{blockIdx.x} * k.width + first_column, sums,
                 k.width - first_column);
}

}  // namespace

void linear_gelu_forward(Tensor& y, Tensor& h, const Tensor& x, const Tensor& w,
                         const Tensor& bias) {
  anabranch::gemm(h, x, w, {.transpose_b = true});
  row_bias<true>(y, h, bias);
}

void linear_gelu_backward(Tensor& dh, GradSink& db, const Tensor& dy, const Tensor& h,
                          const Tensor& bias) {
  dispatch(h.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t width = bias.count();
    if (width == 0) return;
    const GridRows blocks(h.count() / width);
    Tensor partials = h.like({blocks.count, width}, kDTypeOf<A>, "partial sums");
    const GeluBackward<T> k{
        dh.device_data<T>(),       dy.device_data<T>(), h.device_data<T>(), bias.device_data<A>(),
        partials.device_data<A>(), blocks.rows,         blocks.per_block,   width};
    with_packs<T>(
        width % kPack<T> == 0 && aligned_for_packs(k.dh, k.dy, k.h, k.bias), [&]<int kN>() {
          constexpr int64_t kColumns = kColumnThreads * kN;
          const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks.count),
                                         static_cast<unsigned>((width + kColumns - 1) / kColumns)),
                          .threads = dim3(kColumnThreads, kColumnGroups)};
          launch<gelu_backward_kernel<T, kN>>(grid, h.stream(), k);
        });
    add_partials<A>(db, k.partials, blocks.count, width);
  });
}

void column_sums(GradSink& db, const Tensor& dy) {
  dispatch(dy.dtype(), [&]<class T>() { column_sums<T>(db, dy, nullptr); });
}

}  // namespace anabranch::cuda
