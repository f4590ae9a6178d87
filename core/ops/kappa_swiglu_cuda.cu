#include <algorithm>
#include <cmath>
#include <utility>

#include "core/cuda/reciprocal.cuh"
#include "core/ops/group_offsets.cuh"
#include "core/ops/kappa_swiglu.h"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {
namespace {

// A warp has a tile of rows of one expert and a strip of columns, of which each lane has kN: their
// alpha and b stay in registers, and so do the sums over rows.
constexpr int kTileRows = 32;
constexpr int kWarps = 8;  // of a block
constexpr double kLog2E = 1.4426950408889634;

template <class T>
struct Inputs {
  const T* x;                              // [rows, 2 width]
  const Accumulator<T>*score, *alpha, *b;  // null where the term is left out
  const int64_t* offsets;
  int64_t groups, width, strips;
  Accumulator<T> score_factor, bias_factor;  // from score * alpha and b to -2 t / ln 2
  Accumulator<T> log_upper;                  // log2 U
};

template <class T>
struct Gradients {
  T* dx;  // or null
  bool add_dx;
  const T* dh;
  Accumulator<T>* sums;        // [tiles, 2, width]: of dt score and dt over the rows; or null
  Accumulator<T>* score_sums;  // [rows, strips]: of dt alpha over a strip's columns; or null
  Accumulator<T> slope;        // 4 ln U
};

template <class A>
struct Logistic {
  A value, slope;  // s, s (1 - s)
};

// 1 / (1 + 2^y). A NaN stays one.
template <class A>
__device__ __forceinline__ Logistic<A> logistic2(A y) {
  constexpr A kLimit = sizeof(A) == 4 ? A(126) : A(1000);  // past it s is 0, and 2^y infinite
  const A power = std::exp2(y > kLimit ? kLimit : y);
  const A s = reciprocal(A(1) + power);
  return {s, power * s * s};
}

template <class A>
struct Gate {
  A kappa, flat;  // (1 - tanh^2 t) / 4
  Logistic<A> s;  // at kappa z
};

// y = -2 t / ln 2
template <class A>
__device__ __forceinline__ Gate<A> open_gate(A y, A z, A log_upper) {
  const Logistic<A> r = logistic2(y);
  const A kappa = std::exp2(log_upper * (A(2) * r.value - A(1)));
  return {kappa, r.slope, logistic2(kappa * (z * A(-kLog2E)))};
}

// Where a warp works, and the factors of its columns.
template <class T, int kN>
struct Place {
  using A = Accumulator<T>;
  int64_t unit, tile, strip, column;
  GroupTile rows;
  bool inside;  // whether the lane has columns
  A alpha[kN] = {}, b[kN] = {};

  __device__ explicit Place(const Inputs<T>& in)
      : unit(int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp),
        tile(unit / in.strips),
        strip(unit % in.strips),
        column((strip * kWarp + threadIdx.x % kWarp) * kN),
        rows(group_tile<kTileRows>(in.offsets, in.groups, tile)),
        inside(rows.group >= 0 && column < in.width) {
    if (!inside) return;
    const int64_t at = rows.group * in.width + column;
    if (in.alpha != nullptr) {
      const Pack<A, kN> values = load<kN>(in.alpha + at);
      for (int i = 0; i < kN; ++i) alpha[i] = values.v[i] * in.score_factor;
    }
    if (in.b != nullptr) {
      const Pack<A, kN> values = load<kN>(in.b + at);
      for (int i = 0; i < kN; ++i) b[i] = values.v[i] * in.bias_factor;
    }
  }
};

template <class T, int kN>
__global__ void __launch_bounds__(kWarps* kWarp, 2) forward_kernel(Inputs<T> in, T* h) {
  using A = Accumulator<T>;
  const Place<T, kN> at(in);
  if (!at.inside) return;  // nothing is shared from here on
  for (int64_t row = at.rows.begin; row < at.rows.end; ++row) {
    const T* gate = in.x + 2 * row * in.width + at.column;
    const Pack<T, kN> zs = load<kN>(gate), us = load<kN>(gate + in.width);
    const A score = in.score != nullptr ? in.score[row] : A(0);
    Pack<T, kN> hs;
    for (int i = 0; i < kN; ++i) {
      const A z = wide(zs.v[i]);
      const Gate<A> g = open_gate(score * at.alpha[i] + at.b[i], z, in.log_upper);
      hs.v[i] = narrow<T>(z * g.s.value * wide(us.v[i]));
    }
    store(h + row * in.width + at.column, hs);
  }
}

// One lane's columns of a row: writes dx, adds to the sums over rows, gives sum dt alpha.
template <class T, int kN>
__device__ __forceinline__ Accumulator<T> backward_columns(const Inputs<T>& in,
                                                           const Gradients<T>& out,
                                                           const Place<T, kN>& at, int64_t row,
                                                           Accumulator<T>* alpha_sums,
                                                           Accumulator<T>* b_sums) {
  using A = Accumulator<T>;
  const int64_t gate = 2 * row * in.width + at.column, up = gate + in.width;
  const Pack<T, kN> zs = load<kN>(in.x + gate), us = load<kN>(in.x + up);
  const Pack<T, kN> dhs = load<kN>(out.dh + row * in.width + at.column);
  Pack<T, kN> dgates, dups;
  if (out.add_dx) {
    dgates = load<kN>(out.dx + gate);
    dups = load<kN>(out.dx + up);
  }
  const A score = in.score != nullptr ? in.score[row] : A(0);
  A sum = 0;
  for (int i = 0; i < kN; ++i) {
    const A z = wide(zs.v[i]), d = wide(dhs.v[i]), du = d * wide(us.v[i]);
    const Gate<A> g = open_gate(score * at.alpha[i] + at.b[i], z, in.log_upper);
    const A q = g.kappa * z * g.s.slope;
    const A to_gate = du * (g.s.value + q), to_up = d * (z * g.s.value);
    const A dt = du * z * q * (g.flat * out.slope);
    alpha_sums[i] += dt * score;
    b_sums[i] += dt;
    sum += dt * at.alpha[i];
    dgates.v[i] = narrow<T>(out.add_dx ? wide(dgates.v[i]) + to_gate : to_gate);
    dups.v[i] = narrow<T>(out.add_dx ? wide(dups.v[i]) + to_up : to_up);
  }
  if (out.dx != nullptr) {
    store(out.dx + gate, dgates);
    store(out.dx + up, dups);
  }
  return sum;
}

template <class T, int kN>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    backward_kernel(Inputs<T> in, Gradients<T> out) {
  using A = Accumulator<T>;
  const Place<T, kN> at(in);
  if (at.rows.group < 0) return;  // a whole warp, and no barrier of the block follows
  Pack<A, kN> alpha_sums{}, b_sums{};
  for (int64_t row = at.rows.begin; row < at.rows.end; ++row) {
    A sum = 0;
    if (at.inside) {
      sum = backward_columns<T, kN>(in, out, at, row, alpha_sums.v, b_sums.v);
    }
    if (out.score_sums == nullptr) continue;
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) out.score_sums[row * in.strips + at.strip] = sum;
  }
  if (!at.inside || out.sums == nullptr) return;
  A* sums = out.sums + 2 * at.tile * in.width + at.column;
  store(sums, alpha_sums);
  store(sums + in.width, b_sums);
}

// dscore[row] (+)= factor * the sum over strips.
template <class A>
__global__ void __launch_bounds__(kWarps* kWarp)
    add_strips_kernel(A* dscore, bool accumulate, const A* sums, int64_t rows, int64_t strips,
                      A factor) {
  const int64_t row = int64_t{blockIdx.x} * (kWarps * kWarp) + threadIdx.x;
  if (row >= rows) return;
  A sum = 0;
  for (int64_t i = 0; i < strips; ++i) sum += sums[row * strips + i];
  dscore[row] = (accumulate ? dscore[row] : A(0)) + factor * sum;
}

// to[e, c] (+)= factor * the sum over the tiles of expert e; blockIdx.y is e.
template <class A>
__global__ void __launch_bounds__(kWarps* kWarp)
    add_tiles_kernel(A* to, bool accumulate, const A* sums, const int64_t* offsets, int64_t width,
                     A factor) {
  auto& parts = shared<A[kWarps][kWarp]>();
  const int64_t expert = blockIdx.y, column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  const auto tiles_of = [offsets](int64_t e) {
    return (offsets[e + 1] - offsets[e] + kTileRows - 1) / kTileRows;
  };
  int64_t first = 0;
  for (int64_t e = 0; e < expert; ++e) first += tiles_of(e);
  const int64_t end = first + tiles_of(expert);
  A sum = 0;
  if (column < width) {
    for (int64_t i = first + threadIdx.y; i < end; i += kWarps) sum += sums[2 * i * width + column];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int i = 1; i < kWarps; ++i) sum += parts[i][threadIdx.x];
  A& out = to[expert * width + column];
  out = (accumulate ? out : A(0)) + factor * sum;
}

template <class T>
struct Launch {
  using A = Accumulator<T>;
  Inputs<T> in;
  bool packs;
  Tensor offsets;  // what in.offsets points to
  int64_t tiles;

  explicit Launch(const KappaInputs& from, const void* out, const void* other = nullptr)
      : offsets(offsets_on_device(from.groups, from.x)) {
    const auto pointer = [](const Tensor* t) {
      return t != nullptr ? t->device_data<A>() : nullptr;
    };
    const int64_t width = from.x.dim(1) / 2;
    in = {from.x.device_data<T>(),
          pointer(from.score),
          pointer(from.alpha),
          pointer(from.b),
          std::as_const(offsets).device_data<int64_t>(),
          from.groups.count(),
          width,
          0,
          A(-2 * kLog2E * from.kappa.score_scale),
          A(-2 * kLog2E * from.kappa.bias_scale),
          A(std::log2(from.kappa.upper))};
    packs = width % kPack<T> == 0 && aligned_for_packs(in.x, in.alpha, in.b, out, other);
    const int64_t of_strip = int64_t{kWarp} * (packs ? kPack<T> : 1);
    in.strips = (width + of_strip - 1) / of_strip;
    tiles = most_tiles<kTileRows>(from.x.dim(0), in.groups);
  }

  [[nodiscard]] Grid grid() const {
    return {.blocks = dim3(static_cast<unsigned>((tiles * in.strips + kWarps - 1) / kWarps)),
            .threads = dim3(kWarps * kWarp)};
  }
};

template <class A>
void add_tiles(GradSink* to, const A* sums, const int64_t* offsets, double factor) {
  if (to == nullptr) return;
  const int64_t experts = to->out.dim(0), width = to->out.dim(1);
  const Grid grid{.blocks = dim3(static_cast<unsigned>((width + kWarp - 1) / kWarp),
                                 static_cast<unsigned>(experts)),
                  .threads = dim3(kWarp, kWarps)};
  launch<add_tiles_kernel<A>>(grid, to->out.stream(), to->out.template device_data<A>(),
                              to->accumulate, sums, offsets, width, A(factor));
}

}  // namespace

void kappa_swiglu_forward(Tensor& h, const KappaInputs& in) {
  dispatch(in.x.dtype(), [&]<class T>() {
    T* to = h.device_data<T>();
    const Launch<T> k(in, to);
    if (k.packs) return launch<forward_kernel<T, kPack<T>>>(k.grid(), h.stream(), k.in, to);
    launch<forward_kernel<T, 1>>(k.grid(), h.stream(), k.in, to);
  });
}

void kappa_swiglu_backward(const KappaSinks& out, const Tensor& dh, const KappaInputs& in) {
  dispatch(in.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Kappa& kappa = in.kappa;
    T* dx = out.dx != nullptr ? out.dx->out.device_data<T>() : nullptr;
    const T* gradient = dh.device_data<T>();
    const Launch<T> k(in, dx, gradient);
    const int64_t rows = in.x.dim(0), width = k.in.width;
    Tensor sums, score_sums;
    if (out.dalpha != nullptr || out.db != nullptr) {
      // Of no tile too: kernels get addresses within it.
      sums = dh.like({std::max<int64_t>(k.tiles, 1), 2, width}, kDTypeOf<A>, "partial sums");
    }
    if (out.dscore != nullptr) {
      score_sums = dh.like({rows, k.in.strips}, kDTypeOf<A>, "partial sums");
    }
    const Gradients<T> to{dx,
                          out.dx != nullptr && out.dx->accumulate,
                          gradient,
                          sums.empty() ? nullptr : sums.device_data<A>(),
                          score_sums.empty() ? nullptr : score_sums.device_data<A>(),
                          A(4 * std::log(kappa.upper))};
    if (k.packs) {
      launch<backward_kernel<T, kPack<T>>>(k.grid(), dh.stream(), k.in, to);
    } else {
      launch<backward_kernel<T, 1>>(k.grid(), dh.stream(), k.in, to);
    }
    if (!sums.empty()) {
      add_tiles<A>(out.dalpha, to.sums, k.in.offsets, kappa.score_scale);
      add_tiles<A>(out.db, to.sums + width, k.in.offsets, kappa.bias_scale);
    }
    if (out.dscore == nullptr) return;
    constexpr int kThreads = kWarps * kWarp;
    // Place's alpha is score_factor times alpha.
    launch<add_strips_kernel<A>>(
        {.blocks = dim3(static_cast<unsigned>((rows + kThreads - 1) / kThreads)),
         .threads = dim3(kThreads)},
        dh.stream(), out.dscore->out.device_data<A>(), out.dscore->accumulate, to.score_sums, rows,
        k.in.strips, A(kappa.router_grad_scale / (-2 * kLog2E)));
  });
}

}  // namespace anabranch::cuda
