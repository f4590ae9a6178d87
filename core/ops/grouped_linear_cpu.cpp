#include <algorithm>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/gemm.h"
#include "core/ops/grouped_linear.h"

namespace anabranch::cpu {
namespace {

// A product of at least so many multiplications gets all threads; smaller ones run side by side.
// Their results do not depend on the number of threads.
constexpr int64_t kThreadedProduct = int64_t{1} << 27;

// Calls product(tile) for the rows of each group: large groups one after the other, small ones
// spread over threads.
template <class Product>
void for_groups(const Groups& groups, int64_t matrix, const Product& product) {
  std::vector<RowTile> small;
  for (const RowTile& group : row_tiles(groups, std::max<int64_t>(groups.rows(), 1))) {
    if ((group.end - group.begin) * matrix >= kThreadedProduct) {
      product(group);
    } else {
      small.push_back(group);
    }
  }
  for_tiles(small, [&](int64_t i) { product(small[static_cast<size_t>(i)]); });
}

// y[r] (+)= x[r] op(w_e) for the rows of each group.
void map_rows(Tensor& y, const Tensor& x, const Tensor& w, const Groups& groups, bool transpose,
              bool accumulate) {
  const int64_t n = y.dim(1), k = x.dim(1);
  dispatch(x.dtype(), [&]<class T>() {
    T* to = y.data<T>();
    const T *from = x.data<T>(), *matrices = w.data<T>();
    const GemmEnd<Accumulator<T>> end{nullptr, nullptr, x.pool()};
    for_groups(groups, n * k, [&](const RowTile& rows) {
      const GemmShape shape{rows.end - rows.begin, n, k, false, transpose, accumulate};
      gemm<T, T>(to + rows.begin * n, from + rows.begin * k, matrices + rows.group * n * k, shape,
                 end);
    });
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
    const T *left = dy.data<T>(), *right = x.data<T>();
    const bool accumulate = dw.accumulate;
    for (int64_t e = 0; e < groups.count() && !accumulate; ++e) {
      if (groups.size(e) == 0) std::fill_n(to + e * m * n, m * n, A(0));
    }
    for_groups(groups, m * n, [&](const RowTile& rows) {
      const GemmShape shape{m, n, rows.end - rows.begin, true, false, accumulate};
      gemm<T, A>(to + rows.group * m * n, left + rows.begin * m, right + rows.begin * n, shape);
    });
  });
}

}  // namespace anabranch::cpu
