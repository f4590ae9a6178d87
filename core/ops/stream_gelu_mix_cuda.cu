#include <algorithm>

#include "core/ops/gelu.cuh"
#include "core/ops/gemm.h"
#include "core/ops/row_blocks.cuh"
#include "core/ops/stream_gelu_mix.h"
#include "core/tensor/elementwise.cuh"
#include "core/tensor/rows.cuh"

// The kernels of all streams, [N, F, C], are one matrix of N F rows: V of a tile of rows of s, dK
// of it and ds, whose sum over streams is then a part of the product, are each one product.
namespace anabranch::cuda {
namespace {

constexpr int64_t kRowGroup = 64;  // rows of a block, which have one partial sum of db

// y = sum_k g_k gelu(V_k + b_k) of a tile. Reads V once.
template <class Y>
struct Mix {
  using A = Accumulator<Y>;
  Y* y;                // [rows, F]
  const A *v, *g, *b;  // [rows, N, F], [rows, N], [N, F]
  int64_t streams, width;

  template <int kN>
  __device__ void at(int64_t row, int64_t c) const {
    A sums[kN] = {};
    for (int64_t k = 0; k < streams; ++k) {
      const A gate = g[row * streams + k];
      const Pack<A, kN> x = load<kN>(v + (row * streams + k) * width + c);
      const Pack<A, kN> bias = load<kN>(b + k * width + c);
      for (int j = 0; j < kN; ++j) sums[j] += gate * gelu_tanh(x.v[j] + bias.v[j]).value;
    }
    Pack<Y, kN> out;
    for (int j = 0; j < kN; ++j) out.v[j] = narrow<Y>(sums[j]);
    store(y + row * width + c, out);
  }
};

template <class T, class D>
struct Branches {
  using A = Accumulator<T>;
  T* dv;               // [rows, N, F]
  A *dg, *db;          // partial sums [strips, rows, N], null if unwanted, and [groups, N, F]
  const D* dy;         // [rows, F]
  const A *v, *g, *b;  // as Mix has them
  int64_t rows, streams, width;
};

// dV_k = g_k gelu'(V_k + b_k) dY, for a strip of columns of one stream in a group of rows, a warp
// for each row. Reads V once, and dY from the cache but for the first stream.
template <class T, class D, int kN>
__global__ void __launch_bounds__(kRowWarps* kWarp) branches_kernel(Branches<T, D> k) {
  using A = Accumulator<T>;
  constexpr int kStrip = kWarp * kN;
  auto& sums = shared<A[kRowWarps][kStrip]>();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t c = int64_t{blockIdx.x} * kStrip + lane_column<kN>(), stream = blockIdx.y;
  const bool there = c < k.width;
  Pack<A, kN> bias{}, db{};
  if (there) bias = load<kN>(k.b + stream * k.width + c);
  const int64_t begin = int64_t{blockIdx.z} * kRowGroup;
  const int64_t end = begin + kRowGroup < k.rows ? begin + kRowGroup : k.rows;
  for (int64_t row = begin + warp; row < end; row += kRowWarps) {
    const int64_t branch = row * k.streams + stream;
    A dot = 0;
    if (there) {
      const A gate = k.g[branch];
      const Pack<A, kN> v = load<kN>(k.v + branch * k.width + c);
      const Pack<D, kN> dy = load<kN>(k.dy + row * k.width + c);
      Pack<T, kN> dv;
      for (int j = 0; j < kN; ++j) {
        const GeluPoint<A> at = gelu_tanh(v.v[j] + bias.v[j]);
        const A d = wide(dy.v[j]), gradient = gate * at.slope * d;
        dot += d * at.value;
        db.v[j] += gradient;
        dv.v[j] = narrow<T>(gradient);
      }
      store(k.dv + branch * k.width + c, dv);
    }
    if (k.dg == nullptr) continue;
    dot = warp_sum(dot);
    if (threadIdx.x % kWarp == 0) k.dg[int64_t{blockIdx.x} * k.rows * k.streams + branch] = dot;
  }
  store_direct(&sums[warp][lane_column<kN>()], db);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kStrip; i += kRowWarps * kWarp) {
    const int64_t column = int64_t{blockIdx.x} * kStrip + i;
    if (column >= k.width) return;
    A sum = 0;
    for (int from = 0; from < kRowWarps; ++from) sum += sums[from][i];
    k.db[(int64_t{blockIdx.z} * k.streams + stream) * k.width + column] = sum;
  }
}

// What a tile of rows sees of the op.
struct Tile {
  int64_t first, rows;
  Tensor s, g, v;  // v: [rows, N F]

  Tile(const Tensor& s_all, const Tensor& g_all, const Tensor& w, const Tensor& v_all,
       int64_t begin)
      : first(begin),
        rows(std::min(v_all.dim(0), s_all.dim(0) - begin)),
        s(s_all.view(begin * s_all.dim(1), {rows, s_all.dim(1)})),
        g(g_all.view(begin * g_all.dim(1), {rows, g_all.dim(1)})),
        v(v_all.view(0, {rows, v_all.dim(1)})) {
    gemm(v, s, w, {.transpose_b = true});
  }
};

// dV of a tile, and what it adds to db and dg.
template <class T, class D>
void branches(cpu::StreamGradients& to, Tensor& dv, const Tile& t, const Tensor& dy,
              const Tensor& b) {
  using A = Accumulator<T>;
  const int64_t N = b.dim(0), F = b.dim(1), groups = (t.rows + kRowGroup - 1) / kRowGroup;
  Branches<T, D> k{dv.device_data<T>(),
                   nullptr,
                   nullptr,
                   dy.device_data<D>() + t.first * F,
                   t.v.device_data<A>(),
                   t.g.device_data<A>(),
                   b.device_data<A>(),
                   t.rows,
                   N,
                   F};
  with_packs<T>(F % kPack<T> == 0 && aligned_for_packs(k.dv, k.dy, k.v, k.b), [&]<int kN>() {
    const int64_t strips = (F + kWarp * kN - 1) / (kWarp * kN);
    const bool gates = to.dg != nullptr;
    Tensor dg = b.like({gates ? strips : 0, t.rows, N}, b.dtype(), "stream partials");
    Tensor db = b.like({groups, N, F}, b.dtype(), "stream partials");
    if (gates) k.dg = dg.device_data<A>();
    k.db = db.device_data<A>();
    const dim3 blocks(static_cast<unsigned>(strips), static_cast<unsigned>(N),
                      static_cast<unsigned>(groups));
    launch<branches_kernel<T, D, kN>>({.blocks = blocks, .threads = dim3(kRowWarps * kWarp)},
                                      dv.stream(), k);
    GradSink whole{to.db.out, to.db.accumulate || t.first > 0};
    add_partials<A>(whole, k.db, groups, N * F);
    if (!gates) return;
    GradSink part{to.dg->out.view(t.first * N, {t.rows, N}), to.dg->accumulate};
    add_partials<A>(part, k.dg, strips, t.rows * N);
  });
}

}  // namespace

void stream_gelu_mix_forward(Tensor& y, const Tensor& s, const Tensor& g, const Tensor& w,
                             const Tensor& b) {
  const int64_t N = w.dim(0), F = w.dim(1);
  const DType sums = b.dtype();
  const Tensor kernels = w.reshape({N * F, w.dim(2)});
  const int64_t rows = stream_gelu_mix_rows(s.dim(0), N * F, sums, false);
  const Tensor v = s.like({rows, N * F}, sums, "stream products");
  for (int64_t first = 0; first < s.dim(0); first += rows) {
    const Tile t(s, g, kernels, v, first);
    dispatch(y.dtype(), [&]<class Y>() {
      using A = Accumulator<Y>;
      const Mix<Y> f{y.device_data<Y>() + first * F,
                     t.v.device_data<A>(),
                     t.g.device_data<A>(),
                     b.device_data<A>(),
                     N,
                     F};
      const bool packs = F % kPack<Y> == 0 && aligned_for_packs(f.y, f.v, f.b);
      each_row<kPack<Y>>(f, t.rows, F, packs, y.stream());
    });
  }
}

void stream_gelu_mix_backward(cpu::StreamGradients& to, const Tensor& dy, const Tensor& s,
                              const Tensor& g, const Tensor& w, const Tensor& b) {
  const int64_t NF = w.dim(0) * w.dim(1), C = w.dim(2);
  const Tensor kernels = w.reshape({NF, C});
  Tensor dw = to.dw.out.reshape({NF, C});
  const int64_t rows = stream_gelu_mix_rows(s.dim(0), NF, b.dtype(), true);
  const Tensor v = s.like({rows, NF}, b.dtype(), "stream products");
  const Tensor dvs = s.like({rows, NF}, s.dtype(), "stream dV");
  for (int64_t first = 0; first < s.dim(0); first += rows) {
    const Tile t(s, g, kernels, v, first);
    Tensor dv = dvs.view(0, {t.rows, NF});
    dispatch(s.dtype(), [&]<class T>() {
      if (dy.dtype() == s.dtype()) return branches<T, T>(to, dv, t, dy, b);
      branches<T, Accumulator<T>>(to, dv, t, dy, b);
    });
    if (to.ds != nullptr) {
      Tensor ds = to.ds->out.view(first * C, {t.rows, C});
      gemm(ds, dv, kernels, {.accumulate = to.ds->accumulate});
    }
    gemm(dw, dv, t.s, {.transpose_a = true, .accumulate = to.dw.accumulate || first > 0});
  }
}

}  // namespace anabranch::cuda
