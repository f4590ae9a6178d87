#include <algorithm>
#include <vector>

#include "core/ops/gemm_tiles.h"
#include "core/ops/grouped_linear.h"

namespace anabranch::cpu {
namespace {

// y[r] (+)= x[r] op(w_e) for the rows of each group.
void map_rows(Tensor& y, const Tensor& x, const Tensor& w, const Groups& groups, bool transpose,
              bool accumulate) {
  const int64_t n = y.dim(1), k = x.dim(1);
  dispatch(x.dtype(), [&]<class T>() {
    std::vector<TiledProduct<T, T>> products;
    for (int64_t e = 0; e < groups.count(); ++e) {
      const int64_t row = groups.begin(e);
      const GemmShape shape{groups.size(e), n, k, false, transpose, accumulate};
      products.push_back(
          {y.data<T>() + row * n, x.data<T>() + row * k, w.data<T>() + e * n * k, shape});
    }
    gemm_tiles(products, x.pool());
  });
}

}  // namespace

void grouped_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Groups& groups) {
  map_rows(y, x, w, groups, true, false);
}

void grouped_linear_backward(GradSink& dx, const Tensor& dy, const Tensor& w,
                             const Groups& groups) {
  map_rows(dx.out, dy, w, groups, false, dx.accumulate);
}

void grouped_linear_weight_backward(GradSink& dw, const Tensor& dy, const Tensor& x,
                                    const Groups& groups) {
  const int64_t m = dy.dim(1), n = x.dim(1);
  dispatch(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    A* to = dw.out.data<A>();
    std::vector<TiledProduct<T, A>> products;
    for (int64_t e = 0; e < groups.count(); ++e) {
      if (groups.size(e) == 0) {
        if (!dw.accumulate) std::fill_n(to + e * m * n, m * n, A(0));
        continue;
      }
      const int64_t row = groups.begin(e);
      const GemmShape shape{m, n, groups.size(e), true, false, dw.accumulate};
      products.push_back({to + e * m * n, dy.data<T>() + row * m, x.data<T>() + row * n, shape});
    }
    gemm_tiles(products, x.pool());
  });
}

}  // namespace anabranch::cpu
