#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/cuda/reduce.cuh"
#include "core/ops/softmax.h"

namespace anabranch::cuda {
namespace {

constexpr int kThreads = 256;

// `lanes` of a warp beside each other have a row; of rows that are not there, nothing is read.
struct Rows {
  int64_t rows, width;
  int lanes;

  __device__ int64_t row() const { return (int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes; }

  __device__ int64_t first() const { return static_cast<int>(threadIdx.x) % lanes; }

  // Columns of the row.
  __device__ int64_t end() const { return row() < rows ? width : 0; }
};

template <class A>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(Rows k, A* p, const A* logits) {
  const int64_t at = k.row() * k.width, end = k.end();
  A largest = -std::numeric_limits<A>::infinity();
  for (int64_t c = k.first(); c < end; c += k.lanes) {
    largest = logits[at + c] > largest ? logits[at + c] : largest;
  }
  largest = group_max(largest, k.lanes);
  A sum = 0;
  for (int64_t c = k.first(); c < end; c += k.lanes) sum += std::exp(logits[at + c] - largest);
  const A scale = A(1) / group_sum(sum, k.lanes);
  for (int64_t c = k.first(); c < end; c += k.lanes) {
    p[at + c] = std::exp(logits[at + c] - largest) * scale;
  }
}

template <class A>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Rows k, A* dlogits, bool accumulate, const A* dp, const A* p) {
  const int64_t at = k.row() * k.width, end = k.end();
  A dot = 0;
  for (int64_t c = k.first(); c < end; c += k.lanes) dot += dp[at + c] * p[at + c];
  dot = group_sum(dot, k.lanes);
  for (int64_t c = k.first(); c < end; c += k.lanes) {
    const A g = p[at + c] * (dp[at + c] - dot);
    dlogits[at + c] = accumulate ? dlogits[at + c] + g : g;
  }
}

Rows rows_of(const Tensor& p) {
  const int64_t width = p.dim(-1);
  const auto lanes = std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(width, 1, kWarp)));
  return {width == 0 ? 0 : p.count() / width, width, static_cast<int>(lanes)};
}

Grid grid_of(const Rows& k) {
  return {.blocks = dim3(static_cast<unsigned>((k.rows * k.lanes + kThreads - 1) / kThreads)),
          .threads = dim3(kThreads)};
}

}  // namespace

void softmax_forward(Tensor& p, const Tensor& logits) {
  const Rows k = rows_of(p);
  dispatch(p.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch<forward_kernel<A>>(grid_of(k), p.stream(), k, p.device_data<A>(),
                              logits.device_data<A>());
  });
}

void softmax_backward(GradSink& dlogits, const Tensor& dp, const Tensor& p) {
  const Rows k = rows_of(p);
  dispatch(p.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch<backward_kernel<A>>(grid_of(k), p.stream(), k, dlogits.out.device_data<A>(),
                               dlogits.accumulate, dp.device_data<A>(), p.device_data<A>());
  });
}

}  // namespace anabranch::cuda
