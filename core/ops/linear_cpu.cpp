#include <algorithm>

#include "core/base/build.h"
#include "core/ops/gelu.h"
#include "core/ops/gemm.h"
#include "core/ops/linear.h"
#include "core/ops/row_blocks.h"

namespace anabranch::cpu {
namespace {

template <class T, class A>
[[gnu::always_inline]] inline void add_rows(A* sums, const T* dy, int64_t rows, int64_t columns) {
  constexpr int64_t kStrip = 256;  // sums of a strip of columns stay in the first-level cache
  for (int64_t first = 0; first < columns; first += kStrip) {
    const int64_t last = std::min(first + kStrip, columns);
    for (int64_t c = first; c < last; ++c) sums[c] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = dy + r * columns;
#pragma GCC ivdep
      for (int64_t c = first; c < last; ++c) sums[c] += A(row[c]);
    }
  }
}

AB_CLONES void sum_rows(float* sums, const float* dy, int64_t rows, int64_t columns) {
  add_rows(sums, dy, rows, columns);
}

AB_CLONES void sum_rows(float* sums, const Bf16* dy, int64_t rows, int64_t columns) {
  add_rows(sums, dy, rows, columns);
}

void sum_rows(double* sums, const double* dy, int64_t rows, int64_t columns) {
  add_rows(sums, dy, rows, columns);
}

}  // namespace

void linear_gelu_forward(Tensor& y, Tensor& h, const Tensor& x, const Tensor& w,
                         const Tensor& bias) {
  const int64_t M = w.dim(0);
  const auto gelu_of = [&](int64_t begin, int64_t end) {
    Tensor rows = y.view(begin * M, {end - begin, M});
    gelu_forward(rows, h.view(begin * M, {end - begin, M}), GeluForm::kTanh);
  };
  const RangeBody after(gelu_of);
  anabranch::gemm(h, x, w, {.transpose_b = true, .bias = &bias, .after = &after});
}

void linear_gelu_backward(Tensor& dh, GradSink& db, const Tensor& dy, const Tensor& h,
                          const Tensor& /*bias*/) {
  gelu_backward(dh, dy, h, GeluForm::kTanh);
  column_sums(db, dh);
}

void column_sums(GradSink& db, const Tensor& dy) {
  const int64_t columns = db.out.count();
  if (columns == 0) return;
  const RowBlocks blocks(dy.count() / columns);
  dispatch(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Tensor partials = dy.like({blocks.count, columns}, kDTypeOf<A>, "partial sums");
    A* sums = partials.data<A>();
    const T* from = dy.data<T>();
    parallel_for(blocks.count, 1, [=](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        sum_rows(sums + b * columns, from + blocks.begin(b) * columns,
                 blocks.end(b) - blocks.begin(b), columns);
      }
    });
    add_blocks(db, sums, blocks.count, columns);
  });
}

}  // namespace anabranch::cpu
