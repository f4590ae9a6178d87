#include "parallel/comm/reduce.h"

#include <algorithm>
#include <vector>

#include "core/base/build.h"
#include "core/base/error.h"
#include "core/base/tree_sum.h"

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

// Two parts at a time: half the partial sums are never stored.
template <class T, class Fold>
[[gnu::always_inline]] inline void reduce(std::byte* out, const std::byte* const* parts,
                                          size_t ranks, int64_t count) {
  using A = typename SumOf<T>::type;
  std::vector<A> buffers(TreeSum::buffers((ranks + 1) / 2) * static_cast<size_t>(kBlock));
  A* const sums = buffers.data();
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const auto part = [&](size_t r) { return reinterpret_cast<const T*>(parts[r]) + begin; };
    const auto add = [&](size_t i) __attribute__((always_inline)) {
      A* to = sums + static_cast<int64_t>(i) * kBlock;
      const A* from = to + kBlock;
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) to[j] = Fold::apply(to[j], from[j]);
    };
    TreeSum tree;
    for (size_t r = 0; r < ranks; r += 2) {
      A* to = sums + static_cast<int64_t>(tree.top()) * kBlock;
      const T *first = part(r), *second = r + 1 < ranks ? part(r + 1) : nullptr;
      if (second == nullptr) {
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(first[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) {
          to[i] = Fold::apply(static_cast<A>(first[i]), static_cast<A>(second[i]));
        }
      }
      tree.push(add);
    }
    tree.finish(add);
    T* to = reinterpret_cast<T*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = T(sums[i]);
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
