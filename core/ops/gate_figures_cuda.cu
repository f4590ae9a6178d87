#include <cmath>

#include "core/cuda/reduce.cuh"
#include "core/ops/gate_figures.h"
#include "core/ops/row_blocks.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 256;  // of a block

// Of the rows of a block, a thread for each: where the largest gate is, and the entropy; then a
// thread for each stream.
template <class T>
__global__ void __launch_bounds__(kThreads)
    figures_kernel(double* partials, const T* gates, int64_t rows, int64_t N, bool all) {
  auto& largest = shared<int64_t[kRows]>();
  const int64_t first = int64_t{blockIdx.x} * kRows;
  const int64_t here = rows - first < kRows ? rows - first : kRows;
  double entropy = 0;
  if (all && threadIdx.x < here) {
    const T* g = gates + (first + threadIdx.x) * N;
    int64_t top = 0;
    for (int64_t k = 0; k < N; ++k) {
      const auto gate = static_cast<double>(wide(g[k]));
      if (gate > static_cast<double>(wide(g[top]))) top = k;
      if (gate > 0) entropy -= gate * std::log(gate);
    }
    largest[threadIdx.x] = top;
  }
  entropy = block_sum<kThreads>(entropy);  // whose barriers make `largest` seen
  double* to = partials + int64_t{blockIdx.x} * (all ? 2 * N + 1 : N);
  for (int64_t k = threadIdx.x; k < N; k += kThreads) {
    double sum = 0, tops = 0;
    for (int64_t i = 0; i < here; ++i) {
      sum += static_cast<double>(wide(gates[(first + i) * N + k]));
      if (all) tops += largest[i] == k ? 1 : 0;
    }
    to[k] = sum;
    if (all) to[N + k] = tops;
  }
  if (all && threadIdx.x == 0) to[2 * N] = entropy;
}

}  // namespace

void gate_figures(Tensor& to, const Tensor& gates) {
  const int64_t rows = gates.dim(0), N = gates.dim(1), blocks = (rows + kRows - 1) / kRows;
  Tensor partials = to.like({blocks, to.count()}, DType::kF64, "gate figures");
  auto* sums = partials.device_data<double>();
  dispatch(gates.dtype(), [&]<class T>() {
    launch<figures_kernel<T>>(
        {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kThreads)}, to.stream(),
        sums, gates.device_data<T>(), rows, N, to.count() > N);
  });
  GradSink sink{to, false};
  add_partials(sink, sums, blocks, to.count());
}

}  // namespace anabranch::cuda
