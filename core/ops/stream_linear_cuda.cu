#include <algorithm>

#include "core/cuda/reduce.cuh"
#include "core/ops/column_sums.cuh"
#include "core/ops/gemm.h"
#include "core/ops/stream_linear.h"
#include "core/tensor/convert.h"
#include "core/tensor/elementwise.cuh"

// The scaled inputs A_k = g_k s of all streams lie side by side, [rows, N C]. With the kernels laid
// beside each other too, the sum over streams is a part of one product.
namespace anabranch::cuda {
namespace {

// a[row, k, c] = g[row, k] s[row, c]
template <class T>
struct ScaleStreams {
  T* a;
  const T* s;
  const Accumulator<T>* g;
  int64_t streams, width;

  template <int kN>
  __device__ void at(int64_t row, int64_t c) const {
    const Pack<T, kN> x = load<kN>(s + row * width + c);
    for (int64_t k = 0; k < streams; ++k) {
      const auto gate = g[row * streams + k];
      Pack<T, kN> scaled;
      for (int j = 0; j < kN; ++j) scaled.v[j] = narrow<T>(gate * wide(x.v[j]));
      store(a + (row * streams + k) * width + c, scaled);
    }
  }
};

// joined[f, k, c] = w[k, f, c], for each row (k, f) of w
template <class T>
struct JoinKernels {
  T* joined;
  const T* w;
  int64_t streams, outputs, width;

  template <int kN>
  __device__ void at(int64_t row, int64_t c) const {
    const int64_t k = row / outputs, f = row % outputs;
    store(joined + (f * streams + k) * width + c, load<kN>(w + row * width + c));
  }
};

// u[row] += sum_k g[row, k] b_k for kRows rows, which share what they read of b.
template <class U>
struct AddBiases {
  static constexpr int kRows = 4;
  using A = Accumulator<U>;
  U* u;
  const A *g, *b;
  int64_t rows, streams, width;

  template <int kN>
  __device__ void at(int64_t group, int64_t c) const {
    A sums[kRows][kN] = {};
    const int64_t first = group * kRows;
    for (int64_t k = 0; k < streams; ++k) {
      const Pack<A, kN> bias = load<kN>(b + k * width + c);
      for (int r = 0; r < kRows; ++r) {
        const A gate = first + r < rows ? g[(first + r) * streams + k] : A(0);
        for (int j = 0; j < kN; ++j) sums[r][j] += gate * bias.v[j];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= rows) return;
      U* at = u + (first + r) * width + c;
      Pack<U, kN> x = load<kN>(at);
      for (int j = 0; j < kN; ++j) x.v[j] = narrow<U>(wide(x.v[j]) + sums[r][j]);
      store(at, x);
    }
  }
};

// u[row] = sum_k g[row, k] (products[k, row] + b_k)
template <class U, class A>
struct MixBranches {
  U* u;
  const A *products, *g, *b;
  int64_t rows, streams, width;

  template <int kN>
  __device__ void at(int64_t row, int64_t c) const {
    A sums[kN] = {};
    for (int64_t k = 0; k < streams; ++k) {
      const Pack<A, kN> branch = load<kN>(products + (k * rows + row) * width + c);
      const Pack<A, kN> bias = load<kN>(b + k * width + c);
      for (int j = 0; j < kN; ++j) sums[j] += g[row * streams + k] * (branch.v[j] + bias.v[j]);
    }
    Pack<U, kN> y;
    for (int j = 0; j < kN; ++j) y.v[j] = narrow<U>(sums[j]);
    store(u + row * width + c, y);
  }
};

template <class T>
struct InputGradients {
  using A = Accumulator<T>;
  T* ds;            // [rows, C], null if unwanted
  A* dg;            // [rows, N], null if unwanted
  const T *da, *s;  // [rows, N, C], [rows, C]
  const A* g;       // [rows, N]
  const T* du;      // [rows, F]
  const A* b;       // [N, F]
  int64_t rows, streams, C, F;
  bool add_ds, add_dg;
};

constexpr int kRowWarps = 8;

// A lane's part of the dot product of two rows.
template <int kN, class X, class Y>
__device__ __forceinline__ Accumulator<X> part_of_dot(const X* x, const Y* y, int64_t n) {
  Accumulator<X> sum = 0;
  for (int64_t c = threadIdx.x % kWarp * kN; c < n; c += kWarp * kN) {
    const Pack<X, kN> xs = load<kN>(x + c);
    const Pack<Y, kN> ys = load<kN>(y + c);
    for (int j = 0; j < kN; ++j) sum += wide(xs.v[j]) * wide(ys.v[j]);
  }
  return sum;
}

// ds = sum_k g_k dA_k, dg_k = <dA_k, s> + <dU, b_k>; a warp for each row. Reads dA from memory once
// and again from the cache.
template <class T, int kN>
__global__ void __launch_bounds__(kRowWarps* kWarp) input_gradients_kernel(InputGradients<T> k) {
  using A = Accumulator<T>;
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.x / kWarp;
  if (row >= k.rows) return;  // a whole warp, and no barrier follows
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* da = k.da + row * k.streams * k.C;
  const A* g = k.g + row * k.streams;
  for (int64_t i = 0; i < k.streams && k.dg != nullptr; ++i) {
    const A dot = warp_sum(part_of_dot<kN>(da + i * k.C, k.s + row * k.C, k.C) +
                           part_of_dot<kN>(k.du + row * k.F, k.b + i * k.F, k.F));
    A* dg = k.dg + row * k.streams + i;
    if (lane == 0) *dg = k.add_dg ? *dg + dot : dot;
  }
  if (k.ds == nullptr) return;
  for (int64_t c = lane * kN; c < k.C; c += kWarp * kN) {
    A sums[kN] = {};
    for (int64_t i = 0; i < k.streams; ++i) {
      const Pack<T, kN> x = load<kN>(da + i * k.C + c);
      for (int j = 0; j < kN; ++j) sums[j] += g[i] * wide(x.v[j]);
    }
    T* at = k.ds + row * k.C + c;
    Pack<T, kN> ds;
    if (k.add_ds) ds = load<kN>(at);
    for (int j = 0; j < kN; ++j) ds.v[j] = narrow<T>(k.add_ds ? wide(ds.v[j]) + sums[j] : sums[j]);
    store(at, ds);
  }
}

template <class T>
void input_gradients(const InputGradients<T>& k, CUstream_st* stream) {
  const Grid grid{.blocks = dim3(static_cast<unsigned>((k.rows + kRowWarps - 1) / kRowWarps)),
                  .threads = dim3(kRowWarps * kWarp)};
  const bool packs =
      k.C % kPack<T> == 0 && k.F % kPack<T> == 0 && aligned_for_packs(k.ds, k.da, k.s, k.du, k.b);
  if (packs) return launch<input_gradients_kernel<T, kPack<T>>>(grid, stream, k);
  launch<input_gradients_kernel<T, 1>>(grid, stream, k);
}

// What a tile of rows sees of the op.
template <class T>
struct Tile {
  using A = Accumulator<T>;
  int64_t first, rows, C, F, N;
  const T* s;
  const A* g;

  Tile(const Tensor& s_all, const Tensor& g_all, const Tensor& w, int64_t begin, int64_t most)
      : first(begin),
        rows(std::min(most, s_all.dim(0) - begin)),
        C(s_all.dim(1)),
        F(w.dim(1)),
        N(w.dim(0)),
        s(s_all.device_data<T>() + begin * C),
        g(g_all.device_data<A>() + begin * N) {}

  void scale_inputs(T* a, CUstream_st* stream) const {
    const bool packs = C % kPack<T> == 0 && aligned_for_packs(a, s);
    each_row<kPack<T>>(ScaleStreams<T>{a, s, g, N, C}, rows, C, packs, stream);
  }
};

template <class U, class A>
void add_biases(U* u, const A* g, const A* b, int64_t rows, int64_t N, int64_t F,
                CUstream_st* stream) {
  const AddBiases<U> f{u, g, b, rows, N, F};
  const bool packs = F % kPack<U> == 0 && aligned_for_packs(u, b);
  each_row<kPack<U>>(f, (rows + f.kRows - 1) / f.kRows, F, packs, stream);
}

template <class T, class U>
void forward(Tensor& u, const Tensor& s, const Tensor& g, const Tensor& w, const Tensor& b) {
  const int64_t M = s.dim(0), N = w.dim(0), F = w.dim(1), C = w.dim(2), NC = N * C;
  const int64_t most = stream_linear_rows(M, NC, s.dtype());
  Tensor inputs = s.like({most, NC}, s.dtype(), "scaled inputs");
  Tensor joined = w.like({F, NC}, w.dtype(), "joined kernels");
  T *a = inputs.device_data<T>(), *kernels = joined.device_data<T>();
  const JoinKernels<T> join{kernels, w.device_data<T>(), N, F, C};
  const bool packs = C % kPack<T> == 0 && aligned_for_packs(join.joined, join.w);
  each_row<kPack<T>>(join, N * F, C, packs, s.stream());
  for (int64_t first = 0; first < M; first += most) {
    const Tile<T> t(s, g, w, first, most);
    t.scale_inputs(a, s.stream());
    U* to = u.device_data<U>() + first * F;
    gemm(*s.pool(), to, a, kernels, {.m = t.rows, .n = F, .k = NC, .transpose_b = true});
    add_biases(to, t.g, b.device_data<Accumulator<T>>(), t.rows, N, F, s.stream());
  }
}

template <class T, class U>
void forward_by_branch(Tensor& u, const Tensor& s, const Tensor& g, const Tensor& w,
                       const Tensor& b) {
  using A = Accumulator<T>;
  const int64_t M = s.dim(0), N = w.dim(0), F = w.dim(1);
  const int64_t most = stream_linear_rows(M, N * F, accumulator_of(s.dtype()));
  Tensor branches = s.like({most, N * F}, accumulator_of(s.dtype()), "stream branches");
  A* const products = branches.device_data<A>();
  for (int64_t first = 0; first < M; first += most) {
    const Tile<T> t(s, g, w, first, most);
    gemm(*s.pool(), products, t.s, w.device_data<T>(),
         {.m = t.rows,
          .n = F,
          .k = t.C,
          .transpose_b = true,
          .batch = N,
          .stride_b = F * t.C,
          .stride_c = t.rows * F});
    const MixBranches<U, A> mix{
        u.device_data<U>() + first * F, products, t.g, b.device_data<A>(), t.rows, N, F};
    const bool packs = F % kPack<A> == 0 && aligned_for_packs(mix.u, products, mix.b);
    each_row<kPack<A>>(mix, t.rows, F, packs, s.stream());
  }
}

template <class T>
void backward(cpu::StreamGradients& to, const Tensor& du, const Tensor& s, const Tensor& g,
              const Tensor& w, const Tensor& b) {
  using A = Accumulator<T>;
  const int64_t M = s.dim(0), N = w.dim(0), F = w.dim(1), C = w.dim(2), NC = N * C;
  const int64_t most = stream_linear_rows(M, NC, s.dtype());
  Tensor scaled = s.like({most, NC}, s.dtype(), "scaled inputs");
  Tensor of_inputs = s.like({most, NC}, s.dtype(), "stream dA");
  T *a = scaled.device_data<T>(), *da = of_inputs.device_data<T>();
  for (int64_t first = 0; first < M; first += most) {
    const Tile<T> t(s, g, w, first, most);
    const T* d = du.device_data<T>() + first * F;
    if (to.ds != nullptr || to.dg != nullptr) {
      gemm(*s.pool(), da, d, w.device_data<T>(),
           {.m = t.rows, .n = C, .k = F, .ldc = NC, .batch = N, .stride_b = F * C, .stride_c = C});
      input_gradients(
          InputGradients<T>{to.ds != nullptr ? to.ds->out.device_data<T>() + first * C : nullptr,
                            to.dg != nullptr ? to.dg->out.device_data<A>() + first * N : nullptr,
                            da, t.s, t.g, d, b.device_data<A>(), t.rows, N, C, F,
                            to.ds != nullptr && to.ds->accumulate,
                            to.dg != nullptr && to.dg->accumulate},
          s.stream());
    }
    t.scale_inputs(a, s.stream());
    gemm(*s.pool(), to.dw.out.device_data<A>(), d, a,
         {.m = F,
          .n = C,
          .k = t.rows,
          .transpose_a = true,
          .beta = to.dw.accumulate || first > 0 ? 1.0 : 0.0,
          .ldb = NC,
          .batch = N,
          .stride_b = C,
          .stride_c = F * C});
  }
  if (M == 0 && !to.dw.accumulate) to.dw.out.fill_zero();
  column_sums<T>(to.db, du, &g);
}

}  // namespace

void stream_linear_forward(Tensor& u, const Tensor& s, const Tensor& g, const Tensor& w,
                           const Tensor& b, MixOrder order) {
  const bool scaled = order == MixOrder::kScaled;
  dispatch(s.dtype(), [&]<class T>() {
    const auto run = [&]<class U>(U /*type*/) {
      scaled ? forward<T, U>(u, s, g, w, b) : forward_by_branch<T, U>(u, s, g, w, b);
    };
    u.dtype() == s.dtype() ? run(T()) : run(Accumulator<T>());
  });
}

void stream_linear_backward(cpu::StreamGradients& to, const Tensor& du, const Tensor& s,
                            const Tensor& g, const Tensor& w, const Tensor& b) {
  const Tensor d = converted(du, s.dtype(), "stream dU");
  dispatch(s.dtype(), [&]<class T>() { backward<T>(to, d, s, g, w, b); });
}

}  // namespace anabranch::cuda
