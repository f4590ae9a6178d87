#include <cmath>

#include "core/cuda/reduce.cuh"
#include "core/ops/matrix_batch.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kSquareWarps = 8, kSquareColumns = 32, kSquareGroups = 8, kSumThreads = 256;

unsigned parts(int64_t extent, int64_t part) {
  return static_cast<unsigned>((extent + part - 1) / part);
}

// Runs `f` with float or double.
template <class F>
void dispatch_accumulator(const Tensor& t, const F& f) {
  t.dtype() == DType::kF64 ? f.template operator()<double>() : f.template operator()<float>();
}

template <class A>
__device__ __forceinline__ A new_momentum(A m, A g, A momentum) {
  return m + (g - m) * (A(1) - momentum);
}

template <class A>
struct Direction {
  A* v;
  const A *m, *g;
  A momentum, grad_scale;
  bool nesterov;

  template <int kN>
  __device__ void at(int64_t i) const {
    const Pack<A, kN> ms = load<kN>(m + i), gs = load<kN>(g + i);
    Pack<A, kN> vs;
    for (int j = 0; j < kN; ++j) {
      const A grad = gs.v[j] * grad_scale, next = new_momentum(ms.v[j], grad, momentum);
      vs.v[j] = nesterov ? grad + momentum * (next - grad) : next;
    }
    store(v + i, vs);
  }
};

// A warp for each row.
template <class A>
__global__ void __launch_bounds__(kSquareWarps* kWarp)
    row_squares_kernel(double* squares, const A* x, int64_t rows, int64_t cols) {
  const int64_t row = int64_t{blockIdx.x} * kSquareWarps + threadIdx.x / kWarp;
  if (row >= rows) return;  // a whole warp, and no barrier follows
  double sum = 0;
  for (int64_t c = threadIdx.x % kWarp; c < cols; c += kWarp) {
    const auto value = static_cast<double>(x[row * cols + c]);
    sum += value * value;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) squares[row] = sum;
}

// Some columns of a matrix; each kSquareGroups-th row is a group's, and the groups are added in
// their order.
template <class A>
__global__ void __launch_bounds__(kSquareColumns* kSquareGroups)
    column_squares_kernel(double* squares, const A* x, int64_t rows, int64_t cols) {
  auto& sums = shared<double[kSquareGroups][kSquareColumns]>();
  const int64_t column = int64_t{blockIdx.x} * kSquareColumns + threadIdx.x, matrix = blockIdx.y;
  double sum = 0;
  for (int64_t r = threadIdx.y; r < rows && column < cols; r += kSquareGroups) {
    const auto value = static_cast<double>(x[(matrix * rows + r) * cols + column]);
    sum += value * value;
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols) return;
  for (int i = 1; i < kSquareGroups; ++i) sum += sums[i][threadIdx.x];
  squares[matrix * cols + column] = sum;
}

__global__ void __launch_bounds__(kSumThreads)
    sum_each_kernel(double* sums, const double* values, int64_t count) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) {
    sum += values[int64_t{blockIdx.x} * count + i];
  }
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The factors of some elements of a row of all matrices' rows.
template <class A>
struct AxisFactors {
  const double* factors;  // null: 1
  int64_t rows, cols;
  bool of_rows;

  __device__ A operator()(int64_t row, int64_t column) const {
    if (factors == nullptr) return A(1);
    return static_cast<A>(factors[of_rows ? row : row / rows * cols + column]);
  }
};

template <class To, class A>
struct Scale {
  To* to;
  const A* from;
  AxisFactors<A> factor;

  template <int kN>
  __device__ void at(int64_t row, int64_t c) const {
    const int64_t i = row * factor.cols + c;
    const Pack<A, kN> x = load<kN>(from + i);
    Pack<To, kN> y;
    for (int j = 0; j < kN; ++j) y.v[j] = narrow<To>(x.v[j] * factor(row, c + j));
    store(to + i, y);
  }
};

__device__ __forceinline__ bool is_finite(double value) { return value - value == 0; }

// Moves 26 bytes of an element of float beside a bfloat16 value.
template <class A>
struct Step {
  A *w, *m;
  const A *g, *u;
  Bf16* value;
  AxisFactors<A> factor;
  const double* norms;
  A momentum, grad_scale, rate, decay;
  bool cautious;

  template <int kN>
  __device__ void at(int64_t row, int64_t c) const {
    if (!is_finite(norms[row / factor.rows])) return;
    const int64_t i = row * factor.cols + c;
    const Pack<A, kN> gs = load<kN>(g + i), us = load<kN>(u + i);
    Pack<A, kN> ws = load<kN>(w + i), ms = load<kN>(m + i);
    Pack<Bf16, kN> rounded;
    for (int j = 0; j < kN; ++j) {
      ms.v[j] = new_momentum(ms.v[j], gs.v[j] * grad_scale, momentum);
      const A along = us.v[j] * factor(row, c + j);
      const A shrink = cautious && !(along * ws.v[j] >= A(0)) ? A(0) : decay;
      ws.v[j] -= rate * along + shrink * ws.v[j];
      rounded.v[j] = narrow<Bf16>(static_cast<float>(ws.v[j]));
    }
    store(w + i, ws);
    store(m + i, ms);
    if (value != nullptr) store(value + i, rounded);
  }
};

__global__ void count_rejected_kernel(double* rejected, const double* norms, int64_t count) {
  double sum = 0;
  for (int64_t s = 0; s < count; ++s) sum += is_finite(norms[s]) ? 0 : 1;
  *rejected += sum;
}

}  // namespace

void momentum_direction(Tensor& v, const Tensor& m, const Tensor& grad, const MatrixStep& step) {
  dispatch_accumulator(v, [&]<class A>() {
    const Direction<A> f{v.device_data<A>(),
                         m.device_data<A>(),
                         grad.device_data<A>(),
                         static_cast<A>(step.momentum),
                         static_cast<A>(step.grad_scale),
                         step.nesterov};
    each_pack<kPack<A>>(f, v.count(), aligned_for_packs(f.v, f.m, f.g), v.stream());
  });
}

void axis_squares(Tensor& squares, const Tensor& x, const MatrixBatch& batch, bool of_rows) {
  auto* to = squares.device_data<double>();
  dispatch_accumulator(x, [&]<class A>() {
    const A* from = x.device_data<A>();
    if (of_rows) {
      const int64_t rows = batch.count * batch.rows;
      const Grid grid{.blocks = dim3(parts(rows, kSquareWarps)),
                      .threads = dim3(kSquareWarps * kWarp)};
      return launch<row_squares_kernel<A>>(grid, x.stream(), to, from, rows, batch.cols);
    }
    const Grid grid{
        .blocks = dim3(parts(batch.cols, kSquareColumns), static_cast<unsigned>(batch.count)),
        .threads = dim3(kSquareColumns, kSquareGroups)};
    launch<column_squares_kernel<A>>(grid, x.stream(), to, from, batch.rows, batch.cols);
  });
}

void sum_each(Tensor& sums, const Tensor& values) {
  const int64_t count = sums.count();
  launch<sum_each_kernel>(
      {.blocks = dim3(static_cast<unsigned>(count)), .threads = dim3(kSumThreads)}, sums.stream(),
      sums.device_data<double>(), values.device_data<double>(), values.count() / count);
}

void scale_axis(Tensor& to, const Tensor& from, const Tensor& factors, const MatrixBatch& batch,
                bool of_rows) {
  const auto run = [&]<class To, class A>() {
    const Scale<To, A> f{to.device_data<To>(),
                         from.device_data<A>(),
                         {factors.device_data<double>(), batch.rows, batch.cols, of_rows}};
    const bool packs = batch.cols % kPack<A> == 0 && aligned_for_packs(f.to, f.from);
    each_row<kPack<A>>(f, batch.count * batch.rows, batch.cols, packs, to.stream());
  };
  dispatch_accumulator(from, [&]<class A>() {
    to.dtype() == from.dtype() ? run.template operator()<A, A>()
                               : run.template operator()<Bf16, float>();
  });
}

void matrix_step(const MatrixState& state, const MatrixBatch& batch, const Tensor& u,
                 const Tensor* factors, bool of_rows, const Tensor& norms, Tensor* rejected,
                 const MatrixStep& step) {
  const auto* of_matrix = norms.device_data<double>();
  dispatch_accumulator(u, [&]<class A>() {
    const Step<A> f{state.master.device_data<A>(),
                    state.m.device_data<A>(),
                    state.grad.device_data<A>(),
                    u.device_data<A>(),
                    state.value != nullptr ? state.value->device_data<Bf16>() : nullptr,
                    {factors != nullptr ? factors->device_data<double>() : nullptr, batch.rows,
                     batch.cols, of_rows},
                    of_matrix,
                    static_cast<A>(step.momentum),
                    static_cast<A>(step.grad_scale),
                    static_cast<A>(step.rate),
                    static_cast<A>(step.decay),
                    step.cautious};
    const bool packs = batch.cols % kPack<A> == 0 && aligned_for_packs(f.w, f.m, f.g, f.u, f.value);
    each_row<kPack<A>>(f, batch.count * batch.rows, batch.cols, packs, u.stream());
  });
  if (rejected == nullptr) return;
  launch<count_rejected_kernel>({}, u.stream(), rejected->device_data<double>(), of_matrix,
                                batch.count);
}

}  // namespace anabranch::cuda
