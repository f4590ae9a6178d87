#include "core/ops/gelu.h"
#include "core/ops/linear.h"
#include "core/ops/stream_gelu_mix.h"
#include "core/ops/stream_tile.h"
#include "core/tensor/convert.h"

namespace anabranch::cpu {
namespace {

// One stream of a tile, in the type of the sums: V, gelu(V), and in backward dV.
struct Branch {
  Tensor v, h, dv;

  Branch(const Tensor& s, int64_t rows, int64_t width, bool backward)
      : v(s.like({rows, width}, accumulator_of(s.dtype()), "stream product")),
        h(s.like(v.shape(), v.dtype(), "stream gelu")),
        dv(s.like(backward ? v.shape() : Shape{0}, v.dtype(), "stream dV")) {}
};

// V = s K_k^T + b_k and gelu(V).
template <class T>
void run_branch(Branch& branch, const Tile<T>& t, int64_t k) {
  using A = Accumulator<T>;
  A* v = branch.v.data<A>();
  t.product(v, t.s, k, false);
  const A one = 1;
  over_rows(t.rows, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      add_scaled(Scaled<A, A>{v + r * t.F, t.bias(k), &one, 0, 1, t.F});
    }
  });
  gelu_forward(branch.h, branch.v, GeluForm::kTanh);
}

template <class T>
void forward(Tensor& y, const Tensor& s, const Tensor& g, const Tensor& w, const Tensor& b) {
  using A = Accumulator<T>;
  const int64_t F = w.dim(1);
  const bool in_place = y.dtype() == kDTypeOf<A>;
  const int64_t rows = in_place ? 0 : std::min(kStreamRows, s.dim(0));
  Tensor buffer = s.like({rows, F}, kDTypeOf<A>, "stream sums");
  for (int64_t first = 0; first < s.dim(0); first += kStreamRows) {
    const Tile<T> t(s, g, w, b, first, kStreamRows);
    Branch branch(s, t.rows, F, false);
    const A* h = branch.h.data<A>();
    A* sums = in_place ? y.data<A>() + first * F : buffer.data<A>();
    for (int64_t k = 0; k < t.N; ++k) {
      run_branch(branch, t, k);
      over_rows(t.rows, [=](int64_t begin, int64_t end) {
        if (k == 0) std::fill(sums + begin * F, sums + end * F, A(0));
        add_scaled(Scaled<A, A>{sums + begin * F, h + begin * F, t.g + begin * t.N + k, t.N,
                                end - begin, F});
      });
    }
    if (in_place) continue;
    Tensor rounded = y.view(first * F, {t.rows, F});
    convert(rounded, buffer.view(0, {t.rows, F}));
  }
}

// dg_k += <dY, gelu(V)>, and g_k dY into dV, which becomes g_k gelu'(V) dY.
template <class T>
void branch_gradient(const StreamGradients& to, Branch& branch, const Tensor& dy, const Tile<T>& t,
                     int64_t k) {
  using A = Accumulator<T>;
  const A *d = dy.data<A>(), *h = branch.h.data<A>();
  A *dv = branch.dv.data<A>(), *dg = nullptr;
  if (to.dg != nullptr) dg = to.dg->out.template data<A>() + t.first * t.N + k;
  const bool overwrite = to.dg != nullptr && !to.dg->accumulate;
  over_rows(t.rows, [=](int64_t begin, int64_t end) {
    const int64_t at = begin * t.F;
    scale(Scaled<A, A>{dv + at, d + at, t.g + begin * t.N + k, t.N, end - begin, t.F});
    if (dg == nullptr) return;
    for (int64_t r = begin; r < end && overwrite; ++r) dg[r * t.N] = 0;
    add_dots(Dots<A, A>{dg + begin * t.N, d + at, h + at, t.F, t.F, t.N, end - begin, t.F});
  });
  gelu_backward(branch.dv, branch.dv, branch.v, GeluForm::kTanh);
}

template <class T>
void backward(StreamGradients& to, const Tensor& dy, const Tensor& s, const Tensor& g,
              const Tensor& w, const Tensor& b) {
  using A = Accumulator<T>;
  const DType sums = kDTypeOf<A>;
  for (int64_t first = 0; first < s.dim(0); first += kStreamRows) {
    const Tile<T> t(s, g, w, b, first, kStreamRows);
    Branch branch(s, t.rows, t.F, true);
    const Tensor d = converted(dy.view(first * t.F, {t.rows, t.F}), sums, "stream dY");
    Tensor ds = s.like({t.rows, t.C}, sums, "stream ds");
    for (int64_t k = 0; k < t.N; ++k) {
      run_branch(branch, t, k);
      branch_gradient(to, branch, d, t, k);
      const bool there = to.dw.accumulate || first > 0;
      const Tensor dv = converted(branch.dv, s.dtype(), "stream dV");
      if (to.ds != nullptr) {
        gemm<T, A>(ds.data<A>(), dv.data<T>(), t.kernel(k),
                   {t.rows, t.C, t.F, false, false, k > 0});
      }
      gemm<T, A>(to.dw.out.template data<A>() + k * t.F * t.C, dv.data<T>(), t.s,
                 {t.F, t.C, t.rows, true, false, there});
      GradSink db{to.db.out.view(k * t.F, {t.F}), to.db.accumulate || first > 0};
      column_sums(db, branch.dv);
    }
    if (to.ds == nullptr) continue;
    Tensor out = to.ds->out.view(first * t.C, {t.rows, t.C});
    if (to.ds->accumulate) {
      add_converted(out, ds);
    } else {
      convert(out, ds);
    }
  }
}

}  // namespace

void stream_gelu_mix_forward(Tensor& y, const Tensor& s, const Tensor& g, const Tensor& w,
                             const Tensor& b) {
  dispatch(s.dtype(), [&]<class T>() { forward<T>(y, s, g, w, b); });
}

void stream_gelu_mix_backward(StreamGradients& to, const Tensor& dy, const Tensor& s,
                              const Tensor& g, const Tensor& w, const Tensor& b) {
  dispatch(s.dtype(), [&]<class T>() { backward<T>(to, dy, s, g, w, b); });
}

}  // namespace anabranch::cpu
