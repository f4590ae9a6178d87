#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/radix_select.h"
#include "core/ops/sort_key.h"

namespace anabranch::cpu {
namespace {

// Calls f.template operator()<A, Key>(): the scores' type, and that of their keys.
template <class F>
void with_keys(DType scores, const F& f) {
  dispatch(scores, [&]<class T>() {
    using A = Accumulator<T>;
    f.template operator()<A, decltype(sort_key(A()))>();
  });
}

template <class Key>
const Key* keys_of(const Tensor& t) {
  return reinterpret_cast<const Key*>(t.data<std::make_signed_t<Key>>());
}

template <class Key>
Key* keys_of(Tensor& t) {
  return reinterpret_cast<Key*>(t.data<std::make_signed_t<Key>>());
}

template <class F>
void for_experts(int64_t experts, const F& f) {
  parallel_for(experts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) f(e);
  });
}

// The rows that an expert takes: those of larger keys than the k-th, and the first `ties` of its.
template <class Key>
std::vector<int32_t> rows_taken(const Key* keys, int64_t rows, Key kth, int64_t ties,
                                SlotOrder order) {
  std::vector<int32_t> taken;
  for (int64_t m = 0; m < rows; ++m) {
    if (keys[m] > kth || (keys[m] == kth && ties-- > 0)) taken.push_back(static_cast<int32_t>(m));
  }
  if (order == SlotOrder::kAffinity) {
    std::ranges::stable_sort(taken, [&](int32_t a, int32_t b) { return keys[a] > keys[b]; });
  }
  return taken;
}

SlotPlan plan_of(const std::vector<std::vector<int32_t>>& taken, int64_t rows,
                 const Tensor& beside) {
  const int64_t E = std::ssize(taken);
  SlotPlan plan;
  plan.rows = rows;
  for (const auto& of_expert : taken) {
    plan.groups.offsets.push_back(plan.groups.rows() + std::ssize(of_expert));
  }
  const Shape slots{plan.groups.rows()};
  plan.source = beside.like(slots, DType::kI32, "slots.source");
  plan.gate = beside.like(slots, DType::kI32, "slots.gate");
  auto* source = plan.source.data<int32_t>();
  auto* gate = plan.gate.data<int32_t>();
  for (int64_t e = 0; e < E; ++e) {
    for (const int32_t row : taken[static_cast<size_t>(e)]) {
      *source++ = row;
      *gate++ = static_cast<int32_t>(row * E + e);
    }
  }
  return plan;
}

}  // namespace

void begin_select(RadixSelect& select, const Tensor& scores) {
  const int64_t M = scores.dim(0), E = scores.dim(1);
  select.kth.fill_zero();
  std::ranges::fill(select.place.span<int64_t>(), select.k);
  with_keys(select.scores, [&]<class A, class Key>() {
    const A* from = scores.data<A>();
    Key* to = keys_of<Key>(select.keys);
    for_experts(E, [=](int64_t e) {
      for (int64_t m = 0; m < M; ++m) to[e * M + m] = sort_key(from[m * E + e]);
    });
  });
}

void digit_counts(Tensor& counts, const RadixSelect& of, const KeyDigit& digit) {
  const int64_t E = of.keys.dim(0), M = of.keys.dim(1), width = counts.dim(1);
  counts.fill_zero();
  auto* to = counts.data<int64_t>();
  with_keys(of.scores, [&]<class A, class Key>() {
    const Key *keys = keys_of<Key>(of.keys), *kth = keys_of<Key>(of.kth);
    for_experts(E, [=](int64_t e) {
      for (int64_t m = 0; m < M; ++m) {
        const int value = digit.of(keys[e * M + m], kth[e]);
        if (value >= 0) ++to[e * width + value];
      }
    });
  });
}

void take_digit(RadixSelect& of, const KeyDigit& digit, const Tensor& counts) {
  const int64_t width = int64_t{1} << digit.bits;
  auto* place = of.place.data<int64_t>();
  with_keys(of.scores, [&]<class A, class Key>() {
    Key* kth = keys_of<Key>(of.kth);
    for (int64_t e = 0; e < of.keys.dim(0); ++e) {
      const int64_t* with = counts.data<int64_t>() + e * width;
      int64_t value = width - 1;
      for (; value > 0 && with[value] < place[e]; --value) place[e] -= with[value];
      kth[e] |= static_cast<Key>(value) << digit.low;
    }
  });
}

void kth_scores(Tensor& scores, const RadixSelect& of) {
  with_keys(of.scores, [&]<class A, class Key>() {
    const Key* kth = keys_of<Key>(of.kth);
    A* to = scores.data<A>();
    for (int64_t e = 0; e < scores.count(); ++e) to[e] = of_sort_key(kth[e]);
  });
}

SlotPlan slots_taken(const RadixSelect& of, const Tensor& before, SlotOrder order) {
  const int64_t E = of.keys.dim(0), M = of.keys.dim(1);
  const auto *place = of.place.data<int64_t>(), *ties = before.data<int64_t>();
  std::vector<std::vector<int32_t>> taken(static_cast<size_t>(E));
  with_keys(of.scores, [&]<class A, class Key>() {
    const Key *keys = keys_of<Key>(of.keys), *kth = keys_of<Key>(of.kth);
    for_experts(E, [&](int64_t e) {
      taken[static_cast<size_t>(e)] =
          rows_taken(keys + e * M, M, kth[e], place[e] - ties[e], order);
    });
  });
  return plan_of(taken, M, of.keys);
}

}  // namespace anabranch::cpu
