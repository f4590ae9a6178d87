#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/ops/prefix_rows.h"

namespace anabranch::cpu {

void with_prefix(Tensor& to, const Tensor& qkv, const Tensor& keys, const Tensor& values,
                 int64_t sequences) {
  const int64_t n = keys.dim(1), C = keys.dim(2), each = sequences / keys.dim(0);
  const int64_t rows = to.dim(0) / sequences;
  copy_own_rows(to, qkv, sequences, n);
  dispatch(to.dtype(), [&]<class T>() {
    T* out = to.data<T>();
    const T *k = keys.data<T>(), *v = values.data<T>();
    parallel_for(sequences * n, 64, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t s = i / n, at = (s / each * n + i % n) * C;
        T* row = out + (s * rows + i % n) * 3 * C;
        std::copy(k + at, k + at + C, row + C);
        std::copy(v + at, v + at + C, row + 2 * C);
      }
    });
  });
}

void prefix_gradients(GradSink& dkeys, GradSink& dvalues, const Tensor& dy, int64_t sequences) {
  const int64_t P = dkeys.out.dim(0), n = dkeys.out.dim(1), C = dkeys.out.dim(2);
  const int64_t each = sequences / P, rows = dy.dim(0) / sequences;
  dispatch(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T* d = dy.data<T>();
    for (GradSink* sink : {&dkeys, &dvalues}) {
      A* to = sink->out.data<A>();
      const int64_t column = sink == &dkeys ? C : 2 * C;
      const bool add = sink->accumulate;
      parallel_for(P * n, 1, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          A* out = to + i * C;
          if (!add) std::fill(out, out + C, A(0));
          for (int64_t b = 0; b < each; ++b) {
            const T* row = d + ((i / n * each + b) * rows + i % n) * 3 * C + column;
            for (int64_t c = 0; c < C; ++c) out[c] += A(row[c]);
          }
        }
      });
    }
  });
}

void copy_own_rows(Tensor& to, const Tensor& from, int64_t sequences, int64_t prefix) {
  const bool gives = to.dim(0) > from.dim(0);  // `to` has the prefixes
  const int64_t own = (gives ? from : to).dim(0) / sequences, C = to.dim(1);
  const int64_t to_rows = to.dim(0) / sequences, from_rows = from.dim(0) / sequences;
  dispatch(to.dtype(), [&]<class T>() {
    T* out = to.data<T>();
    const T* in = from.data<T>();
    parallel_for(sequences, 1, [=](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        T* first = out + s * to_rows * C;
        if (gives) first = std::fill_n(first, prefix * C, T(0));
        const T* rows = in + (s * from_rows + (gives ? 0 : prefix)) * C;
        std::copy(rows, rows + own * C, first);
      }
    });
  });
}

}  // namespace anabranch::cpu
