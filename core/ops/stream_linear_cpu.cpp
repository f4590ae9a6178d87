#include "core/ops/row_blocks.h"
#include "core/ops/stream_linear.h"
#include "core/ops/stream_tile.h"
#include "core/tensor/convert.h"

namespace anabranch::cpu {
namespace {

// a = g_k s
template <class T>
void scale_inputs(T* a, const Tile<T>& t, int64_t k) {
  over_rows(t.rows, [=](int64_t begin, int64_t end) {
    scale(Scaled<T, T>{a + begin * t.C, t.s + begin * t.C, t.g + begin * t.N + k, t.N, end - begin,
                       t.C});
  });
}

// sums += sum_k g_k b_k
template <class T, class A>
void add_biases(A* sums, const Tile<T>& t) {
  over_rows(t.rows, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      A* row = sums + r * t.F;
      for (int64_t k = 0; k < t.N; ++k) {
        add_scaled(Scaled<A, A>{row, t.bias(k), t.g + r * t.N + k, t.N, 1, t.F});
      }
    }
  });
}

// The sum of a tile in the order of scaled inputs.
template <class T, class A>
void sum_scaled(A* sums, T* inputs, const Tile<T>& t) {
  for (int64_t k = 0; k < t.N; ++k) {
    scale_inputs(inputs, t, k);
    t.product(sums, inputs, k, k > 0);
  }
}

// The sum of a tile in the order of scaled products.
template <class T, class A>
void sum_branches(A* sums, A* product, const Tile<T>& t) {
  for (int64_t k = 0; k < t.N; ++k) {
    t.product(product, t.s, k, false);
    over_rows(t.rows, [=](int64_t begin, int64_t end) {
      if (k == 0) std::fill(sums + begin * t.F, sums + end * t.F, A(0));
      add_scaled(Scaled<A, A>{sums + begin * t.F, product + begin * t.F, t.g + begin * t.N + k, t.N,
                              end - begin, t.F});
    });
  }
}

template <class T>
void forward(Tensor& u, const Tensor& s, const Tensor& g, const Tensor& w, const Tensor& b,
             MixOrder order) {
  using A = Accumulator<T>;
  const int64_t rows = std::min(kStreamForwardRows, s.dim(0)), F = w.dim(1);
  const bool scaled = order == MixOrder::kScaled;
  Tensor inputs = s.like({scaled ? rows : 0, s.dim(1)}, s.dtype(), "scaled inputs");
  Tensor product = s.like({scaled ? 0 : rows, F}, kDTypeOf<A>, "stream product");
  const bool in_place = u.dtype() == kDTypeOf<A>;
  Tensor buffer = s.like({in_place ? 0 : rows, F}, kDTypeOf<A>, "stream sums");
  for (int64_t first = 0; first < s.dim(0); first += kStreamForwardRows) {
    const Tile<T> t(s, g, w, b, first, kStreamForwardRows);
    A* sums = in_place ? u.data<A>() + first * F : buffer.data<A>();
    if (scaled) {
      sum_scaled(sums, inputs.data<T>(), t);
    } else {
      sum_branches(sums, product.data<A>(), t);
    }
    add_biases(sums, t);
    if (in_place) continue;
    Tensor rounded = u.view(first * F, {t.rows, F});
    convert(rounded, buffer.view(0, {t.rows, F}));
  }
}

// db_k (+)= sum_i g_ik dU_i, by fixed blocks of rows.
template <class T>
void bias_gradient(GradSink& db, const Tensor& du, const Tensor& g) {
  using A = Accumulator<T>;
  const int64_t N = g.dim(1), F = du.dim(1);
  const RowBlocks blocks(du.dim(0));
  Tensor partials = du.like({blocks.count, N, F}, kDTypeOf<A>, "partial sums");
  A* sums = partials.data<A>();
  const T* d = du.data<T>();
  const A* gates = g.data<A>();
  parallel_for(blocks.count, 1, [=](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      A* to = sums + block * N * F;
      std::fill(to, to + N * F, A(0));
      for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
        for (int64_t k = 0; k < N; ++k) {
          add_scaled(Scaled<A, T>{to + k * F, d + i * F, gates + i * N + k, N, 1, F});
        }
      }
    }
  });
  add_blocks(db, sums, blocks.count, N * F);
}

// What a tile of the backward works with: dA_k, A_k, and the sums of ds.
template <class T>
struct Scratch {
  using A = Accumulator<T>;
  Tensor da, a, ds;

  explicit Scratch(const Tensor& s)
      : da(s.like({std::min(kStreamRows, s.dim(0)), s.dim(1)}, kDTypeOf<A>, "stream dA")),
        a(s.like(da.shape(), s.dtype(), "scaled inputs")),
        ds(s.like(da.shape(), kDTypeOf<A>, "stream ds")) {}
};

// Stream k of a tile: dA = dU K_k; ds += g_k dA, dg_k += <dA, s> + <dU, b_k>.
template <class T>
void input_gradients(const StreamGradients& to, const T* du, const Tile<T>& t, int64_t k,
                     Scratch<T>& scratch) {
  using A = Accumulator<T>;
  if (to.ds == nullptr && to.dg == nullptr) return;
  A* da = scratch.da.template data<A>();
  A* ds = scratch.ds.template data<A>();
  A* dg = to.dg != nullptr ? to.dg->out.template data<A>() + t.first * t.N + k : nullptr;
  const bool overwrite = to.dg != nullptr && !to.dg->accumulate;
  gemm<T, A>(da, du, t.kernel(k), {t.rows, t.C, t.F});
  over_rows(t.rows, [=](int64_t begin, int64_t end) {
    if (k == 0) std::fill(ds + begin * t.C, ds + end * t.C, A(0));
    add_scaled(Scaled<A, A>{ds + begin * t.C, da + begin * t.C, t.g + begin * t.N + k, t.N,
                            end - begin, t.C});
    if (dg == nullptr) return;
    for (int64_t r = begin; r < end && overwrite; ++r) dg[r * t.N] = 0;
    add_dots(Dots<A, T>{dg + begin * t.N, da + begin * t.C, t.s + begin * t.C, t.C, t.C, t.N,
                        end - begin, t.C});
    add_dots(
        Dots<T, A>{dg + begin * t.N, du + begin * t.F, t.bias(k), t.F, 0, t.N, end - begin, t.F});
  });
}

template <class T>
void backward(StreamGradients& to, const Tensor& du, const Tensor& s, const Tensor& g,
              const Tensor& w, const Tensor& b) {
  using A = Accumulator<T>;
  if (s.dim(0) == 0 && !to.dw.accumulate) to.dw.out.fill_zero();
  Scratch<T> scratch(s);
  for (int64_t first = 0; first < s.dim(0); first += kStreamRows) {
    const Tile<T> t(s, g, w, b, first, kStreamRows);
    const T* d = du.data<T>() + first * t.F;
    for (int64_t k = 0; k < t.N; ++k) {
      input_gradients(to, d, t, k, scratch);
      T* a = scratch.a.template data<T>();
      scale_inputs(a, t, k);
      A* dw = to.dw.out.template data<A>() + k * t.F * t.C;
      gemm<T, A>(dw, d, a, {t.F, t.C, t.rows, true, false, to.dw.accumulate || first > 0});
    }
    if (to.ds == nullptr) continue;
    Tensor out = to.ds->out.view(first * t.C, {t.rows, t.C});
    const Tensor ds = scratch.ds.view(0, {t.rows, t.C});
    if (to.ds->accumulate) {
      add_converted(out, ds);
    } else {
      convert(out, ds);
    }
  }
  bias_gradient<T>(to.db, du, g);
}

}  // namespace

void stream_linear_forward(Tensor& u, const Tensor& s, const Tensor& g, const Tensor& w,
                           const Tensor& b, MixOrder order) {
  dispatch(s.dtype(), [&]<class T>() { forward<T>(u, s, g, w, b, order); });
}

void stream_linear_backward(StreamGradients& to, const Tensor& du, const Tensor& s, const Tensor& g,
                            const Tensor& w, const Tensor& b) {
  dispatch(s.dtype(), [&]<class T>() { backward<T>(to, du, s, g, w, b); });
}

}  // namespace anabranch::cpu
