#include <algorithm>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/gather_rows.h"

namespace anabranch::cpu {
namespace {

// The sum of some rows of z.
template <class T, class A = Accumulator<T>>
struct Sum {
  T* y;
  const T* const* z;  // its rows
  const A* weight;
  const int32_t *slot, *slot_end;
  int64_t width;
  bool accumulate;
};

// Of so many rows that their sums stay in registers: what they are added to is written once.
template <int kRows, class T, class A>
[[gnu::always_inline]] inline void sum_few(const Sum<T, A>& k) {
  const T* z[kRows];
  A weight[kRows];
  for (int r = 0; r < kRows; ++r) {
    z[r] = k.z[k.slot[r]];
    weight[r] = k.weight != nullptr ? k.weight[k.slot[r]] : A(1);
  }
  T* y = k.y;
  const bool accumulate = k.accumulate;
#pragma GCC ivdep
  for (int64_t c = 0; c < k.width; ++c) {
    A sum = accumulate ? A(y[c]) : A(0);
    for (int r = 0; r < kRows; ++r) sum += weight[r] * A(z[r][c]);
    y[c] = T(sum);
  }
}

template <class T, class A>
[[gnu::always_inline]] inline void sum_row(const Sum<T, A>& k) {
  switch (k.slot_end - k.slot) {
    case 1:
      return sum_few<1>(k);
    case 2:
      return sum_few<2>(k);
    case 3:
      return sum_few<3>(k);
    case 4:
      return sum_few<4>(k);
    default:
      break;
  }
  constexpr int64_t kStrip = 256;  // columns whose sums stay in the first-level cache
  A sums[kStrip];
  for (int64_t first = 0; first < k.width; first += kStrip) {
    const int64_t n = std::min(kStrip, k.width - first);
    T* y = k.y + first;
    for (int64_t c = 0; c < n; ++c) sums[c] = k.accumulate ? A(y[c]) : A(0);
    for (const int32_t* s = k.slot; s != k.slot_end; ++s) {
      const T* z = k.z[*s] + first;
      const A weight = k.weight != nullptr ? k.weight[*s] : A(1);
      for (int64_t c = 0; c < n; ++c) sums[c] += weight * A(z[c]);
    }
    for (int64_t c = 0; c < n; ++c) y[c] = T(sums[c]);
  }
}

AB_CLONES void run(const Sum<float>& k) { sum_row(k); }

AB_CLONES void run(const Sum<Bf16>& k) { sum_row(k); }

void run(const Sum<double>& k) { sum_row(k); }

// Rows that are worth a thread's while.
int64_t grain(int64_t width) {
  return std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(width, 1));
}

}  // namespace

SlotsOfRows slots_of_rows(const char* op, const Tensor& source, int64_t rows) {
  const auto* row = source.data<int32_t>();
  SlotsOfRows of;
  of.offsets.assign(static_cast<size_t>(rows) + 1, 0);
  for (int64_t s = 0; s < source.count(); ++s) {
    AB_CHECK(row[s] >= 0 && row[s] < rows, "[", op, "] the source of slot ", s, " is ", row[s],
             " but there are ", rows, " rows");
    ++of.offsets[static_cast<size_t>(row[s]) + 1];
  }
  for (size_t m = 1; m < of.offsets.size(); ++m) of.offsets[m] += of.offsets[m - 1];
  std::vector<int32_t> next(of.offsets.begin(), of.offsets.end() - 1);
  of.slots.resize(static_cast<size_t>(source.count()));
  for (int64_t s = 0; s < source.count(); ++s) {
    of.slots[static_cast<size_t>(next[static_cast<size_t>(row[s])]++)] = static_cast<int32_t>(s);
  }
  return of;
}

void gather_rows_forward(Tensor& y, const Tensor& x, const Tensor& source) {
  const int64_t width = y.dim(1) * size_of(y.dtype());
  const std::byte* from = x.raw();
  std::byte* to = y.raw();
  const auto* row = source.data<int32_t>();
  parallel_for(source.count(), grain(y.dim(1)), [=](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      std::copy_n(from + row[s] * width, width, to + s * width);
    }
  });
}

void sum_slots(GradSink& y, std::span<const Tensor> z, const Tensor* weight,
               const SlotsOfRows& of) {
  const int64_t width = y.out.dim(1);
  dispatch(y.out.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = y.out.data<T>();
    std::vector<const T*> rows;
    rows.reserve(of.slots.size());
    for (const Tensor& piece : z) {
      for (int64_t s = 0; s < piece.dim(0); ++s) rows.push_back(piece.data<T>() + s * width);
    }
    const T* const* const from = rows.data();
    const A* weights = weight != nullptr ? weight->data<A>() : nullptr;
    const bool accumulate = y.accumulate;
    parallel_for(y.out.dim(0), grain(width), [=, &of](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        const int32_t* first = of.slots.data() + of.offsets[static_cast<size_t>(m)];
        const int32_t* last = of.slots.data() + of.offsets[static_cast<size_t>(m) + 1];
        if (accumulate && first == last) continue;
        run(Sum<T>{to + m * width, from, weights, first, last, width, accumulate});
      }
    });
  });
}

}  // namespace anabranch::cpu
