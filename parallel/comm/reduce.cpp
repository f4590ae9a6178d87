#include "parallel/comm/reduce.h"

#include <algorithm>
#include <array>

#include "core/base/build.h"
#include "core/base/error.h"

namespace anabranch {
namespace {

constexpr int64_t kBlock = 1024;  // elements whose sums stay in the first-level cache

struct Add {
  template <class A>
  static A apply(A a, A b) {
    return a + b;
  }
};

struct Greatest {
  template <class A>
  static A apply(A a, A b) {
    return b > a || b != b ? b : a;  // a NaN wins
  }
};

template <class T>
struct SumOf {
  using type = Accumulator<T>;
};

template <>
struct SumOf<int64_t> {
  using type = int64_t;
};

template <class T, class Fold>
[[gnu::always_inline]] inline void reduce(std::byte* out, const std::byte* const* parts,
                                          size_t ranks, int64_t count) {
  using A = typename SumOf<T>::type;
  std::array<A, kBlock> sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = reinterpret_cast<const T*>(parts[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] = static_cast<A>(first[i]);
    for (size_t r = 1; r < ranks; ++r) {
      const T* next = reinterpret_cast<const T*>(parts[r]) + begin;
      for (int64_t i = 0; i < n; ++i) {
        A& at = sum[static_cast<size_t>(i)];
        at = Fold::apply(at, static_cast<A>(next[i]));
      }
    }
    T* to = reinterpret_cast<T*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = T(sum[static_cast<size_t>(i)]);
  }
}

AB_CLONES void sum_f32(std::byte* out, const std::byte* const* parts, size_t ranks, int64_t count) {
  reduce<float, Add>(out, parts, ranks, count);
}

AB_CLONES void sum_bf16(std::byte* out, const std::byte* const* parts, size_t ranks,
                        int64_t count) {
  reduce<Bf16, Add>(out, parts, ranks, count);
}

template <class Fold>
void reduce_any(DType type, std::byte* out, const std::byte* const* parts, size_t ranks,
                int64_t count) {
  if (type == DType::kI64) return reduce<int64_t, Fold>(out, parts, ranks, count);
  dispatch(type, [&]<class T>() { reduce<T, Fold>(out, parts, ranks, count); });
}

}  // namespace

void reduce_in_order(DType type, CollectiveKind kind, std::byte* out,
                     std::span<const std::byte* const> parts, int64_t count) {
  if (kind == CollectiveKind::kAllReduceMax) {
    reduce_any<Greatest>(type, out, parts.data(), parts.size(), count);
  } else if (type == DType::kF32) {
    sum_f32(out, parts.data(), parts.size(), count);
  } else if (type == DType::kBF16) {
    sum_bf16(out, parts.data(), parts.size(), count);
  } else {
    reduce_any<Add>(type, out, parts.data(), parts.size(), count);
  }
}

int64_t share_begin(int64_t count, int ranks, int r) {
  constexpr int64_t kUnit = 32;  // whole cache lines, so that ranks that are threads share none
  if (r == ranks) return count;
  return std::min(count, (count + kUnit - 1) / kUnit * r / ranks * kUnit);
}

}  // namespace anabranch
