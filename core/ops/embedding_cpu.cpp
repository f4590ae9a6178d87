#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/embedding.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kRowGrain = 16;

template <class T>
[[gnu::always_inline]] inline void sum_of(T* to, const T* a, const T* b, int64_t n) {
  using A = Accumulator<T>;
  for (int64_t i = 0; i < n; ++i) to[i] = T(A(a[i]) + A(b[i]));
}

AB_CLONES void add(float* to, const float* a, const float* b, int64_t n) { sum_of(to, a, b, n); }

AB_CLONES void add(Bf16* to, const Bf16* a, const Bf16* b, int64_t n) { sum_of(to, a, b, n); }

AB_CLONES void add(double* to, const double* a, const double* b, int64_t n) { sum_of(to, a, b, n); }

template <class A, class T>
[[gnu::always_inline]] inline void add_onto(A* to, const T* from, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] += A(from[i]);
}

AB_CLONES void gather(float* to, const float* from, int64_t n) { add_onto(to, from, n); }

AB_CLONES void gather(float* to, const Bf16* from, int64_t n) { add_onto(to, from, n); }

void gather(double* to, const double* from, int64_t n) { add_onto(to, from, n); }

}  // namespace

void embedding_forward(Tensor& y, const Tensor& ids, const Tensor& table, const Tensor& positions,
                       const Tensor* position_table) {
  const int64_t C = table.dim(1);
  const auto* id = ids.data<int32_t>();
  const int32_t* position = position_table != nullptr ? positions.data<int32_t>() : nullptr;
  dispatch(table.dtype(), [&]<class T>() {
    T* to = y.data<T>();
    const T* rows = table.data<T>();
    const T* second = position != nullptr ? position_table->data<T>() : nullptr;
    parallel_for(ids.count(), kRowGrain, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* row = rows + id[n] * C;
        if (position == nullptr) {
          std::copy(row, row + C, to + n * C);
        } else {
          add(to + n * C, row, second + position[n] * C, C);
        }
      }
    });
  });
}

// Rows of dy are sorted by id; whoever has the first row of an id adds up all rows of that id.
void embedding_backward(GradSink& dtable, const Tensor& ids, const Tensor& dy) {
  const int64_t C = dy.dim(-1);
  const auto* id = ids.data<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(ids.count()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [id](int32_t a, int32_t b) { return id[a] < id[b]; });
  dispatch(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    A* to = dtable.out.data<A>();
    if (!dtable.accumulate) {
      parallel_for(dtable.out.dim(0), kRowGrain, [=](int64_t begin, int64_t end) {
        std::fill(to + begin * C, to + end * C, A(0));
      });
    }
    const T* from = dy.data<T>();
    parallel_for(std::ssize(order), kRowGrain, [=, &order](int64_t begin, int64_t end) {
      const int32_t* row = order.data();
      const int64_t N = std::ssize(order);
      while (begin > 0 && begin < end && id[row[begin]] == id[row[begin - 1]]) ++begin;
      for (int64_t i = begin; i < end; ++i) {
        gather(to + id[row[i]] * C, from + row[i] * C, C);
        if (i + 1 == end && end < N && id[row[end]] == id[row[i]]) ++end;
      }
    });
  });
}

}  // namespace anabranch::cpu
