// Losses that are a mean of something over short rows: it stays in the device's memory.
#pragma once

#include "core/ops/logit_rows.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

// A block's share of the rows: as many for each of its groups of lanes.
inline constexpr int kRowsOfGroup = 8;

template <class F>
__global__ void __launch_bounds__(kLogitThreads)
    sum_rows_kernel(double* partials, F of_row, int64_t rows, int lanes) {
  const int64_t groups = kLogitThreads / lanes;
  const int64_t first = int64_t{blockIdx.x} * groups * kRowsOfGroup + threadIdx.x / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  double sum = 0;
  for (int i = 0; i < kRowsOfGroup; ++i) {
    const int64_t row = first + i * groups;
    const bool here = row < rows;  // lanes of a warp stay together
    const auto value = static_cast<double>(of_row(LaneRow{here ? row : rows - 1, lane, here}));
    if (here && lane == 0) sum += value;
  }
  sum = block_sum<kLogitThreads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <class A>
__global__ void __launch_bounds__(kLogitThreads)
    scaled_sum_kernel(A* to, const double* partials, int64_t count, double scale) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kLogitThreads) sum += partials[i];
  sum = block_sum<kLogitThreads>(sum);
  if (threadIdx.x == 0) *to = static_cast<A>(sum * scale);
}

// loss[0] = scale * the sum over the rows of of_row(LaneRow), which all lanes of a row are asked
// for together and of which one's answer counts.
template <class A, class F>
void sum_of_rows(Tensor& loss, F of_row, int64_t rows, int lanes, double scale) {
  const int64_t each_block = kLogitThreads / lanes * kRowsOfGroup;
  const int64_t blocks = (rows + each_block - 1) / each_block;
  Tensor partials = loss.like({blocks}, DType::kF64, "loss_partials");
  auto* sums = partials.device_data<double>();
  launch<sum_rows_kernel<F>>(
      {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kLogitThreads)},
      loss.stream(), sums, of_row, rows, lanes);
  launch<scaled_sum_kernel<A>>({.threads = dim3(kLogitThreads)}, loss.stream(),
                               loss.device_data<A>(), sums, blocks, scale);
}

template <class F>
__global__ void __launch_bounds__(kLogitThreads) for_rows_kernel(F f, int64_t rows, int lanes) {
  f(lane_row(rows, lanes));
}

// Calls f(LaneRow) for all rows, and for some behind the last.
template <class F>
void for_rows(F f, int64_t rows, int lanes, CUstream_st* stream) {
  launch<for_rows_kernel<F>>(logit_grid(rows, lanes), stream, f, rows, lanes);
}

}  // namespace anabranch::cuda
