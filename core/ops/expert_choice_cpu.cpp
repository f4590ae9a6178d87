#include <algorithm>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/expert_choice.h"
#include "core/ops/sort_key.h"

namespace anabranch::cpu {
namespace {

// A row of a pool as one number: larger is chosen first.
uint64_t choice_key(float score, int64_t row) {
  return (uint64_t{sort_key(score)} << 32U) | (0xFFFFFFFFU - static_cast<uint32_t>(row));
}

struct WideKey {
  uint64_t score;
  int64_t row;

  bool operator>(const WideKey& other) const {
    return score != other.score ? score > other.score : row < other.row;
  }
};

WideKey choice_key(double score, int64_t row) { return {sort_key(score), row}; }

int64_t row_of(uint64_t key) {
  return static_cast<int64_t>(0xFFFFFFFFU - static_cast<uint32_t>(key & 0xFFFFFFFFU));
}

int64_t row_of(const WideKey& key) { return key.row; }

// What one expert takes of one pool.
struct Turn {
  int64_t expert, experts, first, rows, k;
  SlotOrder order;
};

// Rows go to `source`, their indices among the scores to `gate`.
template <class A>
A choose(int32_t* source, int32_t* gate, const A* scores, const Turn& t) {
  using Key = decltype(choice_key(A(), 0));
  std::vector<Key> keys(static_cast<size_t>(t.rows));
  for (int64_t i = 0; i < t.rows; ++i) {
    keys[static_cast<size_t>(i)] = choice_key(scores[(t.first + i) * t.experts + t.expert], i);
  }
  const auto last = keys.begin() + (t.k - 1);
  std::nth_element(keys.begin(), last, keys.end(), std::greater<>());
  const int64_t worst = t.first + row_of(*last);
  if (t.order == SlotOrder::kAffinity) {
    std::sort(keys.begin(), last, std::greater<>());
  } else {
    std::sort(keys.begin(), last + 1,
              [](const Key& a, const Key& b) { return row_of(a) < row_of(b); });
  }
  for (int64_t i = 0; i < t.k; ++i) {
    const int64_t row = t.first + row_of(keys[static_cast<size_t>(i)]);
    source[i] = static_cast<int32_t>(row);
    gate[i] = static_cast<int32_t>(row * t.experts + t.expert);
  }
  return of_sort_key(sort_key(scores[worst * t.experts + t.expert]));
}

template <class Taken>
void mark(Tensor& mask, const Taken& taken) {
  constexpr int64_t kGrain = 4096;
  auto* to = mask.data<uint8_t>();
  parallel_for(mask.count(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = taken(i) ? 1 : 0;
  });
}

}  // namespace

void expert_choice(ExpertChoice& choice, const Tensor& scores, const ExpertChoiceRule& rule) {
  const int64_t pools = choice.kth.dim(0), E = scores.dim(1), k = choice.k;
  auto* source = choice.plan.source.data<int32_t>();
  auto* gate = choice.plan.gate.data<int32_t>();
  dispatch(scores.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A* from = scores.data<A>();
    A* kth = choice.kth.data<A>();
    parallel_for(pools * E, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t e = i / pools, pool = i % pools;
        const Turn turn{e, E, pool * rule.pool_rows, rule.pool_rows, k, rule.order};
        kth[pool * E + e] = choose(source + i * k, gate + i * k, from, turn);
      }
    });
  });
}

void threshold_mask(Tensor& mask, const Tensor& scores, const Tensor& threshold) {
  const int64_t E = scores.dim(1);
  dispatch(scores.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A *from = scores.data<A>(), *least = threshold.data<A>();
    mark(mask, [=](int64_t i) { return from[i] >= least[i % E]; });
  });
}

void positive_mask(Tensor& mask, const Tensor& logits) {
  dispatch(logits.dtype(), [&]<class T>() {
    const auto* from = logits.data<Accumulator<T>>();
    mark(mask, [=](int64_t i) { return from[i] > 0; });
  });
}

SlotPlan slots_of_mask(const Tensor& mask) {
  const int64_t M = mask.dim(0), E = mask.dim(1);
  const auto* taken = mask.data<uint8_t>();
  std::vector<int64_t> next(static_cast<size_t>(E), 0);
  for (int64_t i = 0; i < M * E; ++i) next[static_cast<size_t>(i % E)] += taken[i] != 0 ? 1 : 0;
  SlotPlan plan;
  plan.rows = M;
  for (int64_t& e : next) {
    const int64_t count = e;
    e = plan.groups.rows();
    plan.groups.offsets.push_back(e + count);
  }
  plan.source = mask.like({plan.groups.rows()}, DType::kI32, "slots.source");
  plan.gate = mask.like({plan.groups.rows()}, DType::kI32, "slots.gate");
  auto* source = plan.source.data<int32_t>();
  auto* gate = plan.gate.data<int32_t>();
  for (int64_t i = 0; i < M * E; ++i) {
    if (taken[i] == 0) continue;
    const int64_t at = next[static_cast<size_t>(i % E)]++;
    source[at] = static_cast<int32_t>(i / E);
    gate[at] = static_cast<int32_t>(i);
  }
  return plan;
}

}  // namespace anabranch::cpu
