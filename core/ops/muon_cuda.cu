#include <algorithm>
#include <cmath>

#include "core/cuda/reduce.cuh"
#include "core/ops/matrix_batch.h"
#include "core/ops/muon.h"

namespace anabranch::cuda {
namespace {

constexpr int kThreads = 256;

// Moves the second moments `s` [S, n] towards the mean squares and turns `squares` [S, n], sums of
// `width` squares, into the factors of the update, a block for each matrix. If a square is not
// finite, neither is norms[S], and s stays as it was.
template <class A>
__global__ void __launch_bounds__(kThreads)
    reduce_variance_kernel(double* squares, A* s, double* norms, int64_t n, double width,
                           double beta2) {
  const int64_t first = int64_t{blockIdx.x} * n;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += squares[first + i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) norms[blockIdx.x] = sum;
  const bool finite = sum - sum == 0;
  double scaled = 0;
  for (int64_t i = first + threadIdx.x; i < first + n && finite; i += kThreads) {
    const auto before = static_cast<double>(s[i]);
    const A after = static_cast<A>(before + (squares[i] / width - before) * (1 - beta2));
    const double moment = static_cast<double>(after) > 1e-10 ? static_cast<double>(after) : 1e-10;
    s[i] = after;
    scaled += squares[i] / moment;
    squares[i] = 1 / std::sqrt(moment);
  }
  scaled = std::sqrt(block_sum<kThreads>(scaled));
  const double kept = std::sqrt(sum) / (scaled > 1e-10 ? scaled : 1e-10);
  for (int64_t i = first + threadIdx.x; i < first + n; i += kThreads) squares[i] *= kept;
}

}  // namespace

void muon(Tensor& master, Tensor& m, Tensor& s, const Tensor& grad, Tensor* value,
          const MuonStep& step, Tensor* rejected) {
  const MatrixBatch batch = matrix_batch("muon", master);
  const bool of_rows = batch.rows >= batch.cols;
  const double aspect = static_cast<double>(batch.rows) / static_cast<double>(batch.cols);
  const double rate = step.lr * std::sqrt(std::max(1.0, aspect));
  const MatrixStep common{
      rate, rate * step.weight_decay, step.momentum, step.grad_scale, step.nesterov, true};
  Tensor u = master.like("muon");
  momentum_direction(u, m, grad, common);
  cuda::polar(u, u, step.compute, step.form);
  Tensor factors = master.like({batch.count, batch.longer()}, DType::kF64, "muon"),
         norms = master.like({batch.count}, DType::kF64, "muon");
  axis_squares(factors, u, batch, of_rows);
  const auto reduce = [&]<class A>() {
    launch<reduce_variance_kernel<A>>(
        {.blocks = dim3(static_cast<unsigned>(batch.count)), .threads = dim3(kThreads)},
        master.stream(), factors.device_data<double>(), s.device_data<A>(),
        norms.device_data<double>(), batch.longer(), static_cast<double>(batch.shorter()),
        step.beta2);
  };
  s.dtype() == DType::kF64 ? reduce.template operator()<double>()
                           : reduce.template operator()<float>();
  matrix_step({master, m, grad, value}, batch, u, &factors, of_rows, norms, rejected, common);
}

}  // namespace anabranch::cuda
