#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/sort_key.h"
#include "core/ops/top_k_route.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kRowGrain = 64;

// The k largest of a row by insertion: k and E are small.
template <class T>
void top_k_row(int32_t* best, const T* s, int64_t k, int64_t experts) {
  int64_t have = 0;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t at = have;
    while (at > 0 && sort_key(s[best[at - 1]]) < sort_key(s[e])) --at;
    if (at == k) continue;
    have = std::min(have + 1, k);
    for (int64_t i = have - 1; i > at; --i) best[i] = best[i - 1];
    best[at] = static_cast<int32_t>(e);
  }
}

// The logits whose exponentials a row's gates are shares of.
template <class T>
class Support {
 public:
  Support(const Tensor& logits, const TopKRoute& route, GateForm form)
      : s_(logits.data<T>()),
        expert_(route.expert.data<int32_t>()),
        experts_(logits.dim(1)),
        k_(route.expert.dim(1)),
        all_(form == GateForm::kProbability) {}

  [[nodiscard]] int64_t size() const { return all_ ? experts_ : k_; }

  [[nodiscard]] int64_t expert(int64_t row, int64_t i) const {
    return all_ ? i : expert_[row * k_ + i];
  }

  // Where choice c of a row is among them.
  [[nodiscard]] int64_t of_choice(int64_t row, int64_t c) const {
    return all_ ? expert_[row * k_ + c] : c;
  }

  // p[i] = the softmax over the row's support.
  void softmax(T* p, int64_t row) const {
    const T largest = s_[row * experts_ + expert_[row * k_]];
    T sum = 0;
    for (int64_t i = 0; i < size(); ++i) {
      p[i] = std::exp(s_[row * experts_ + expert(row, i)] - largest);
      sum += p[i];
    }
    for (int64_t i = 0; i < size(); ++i) p[i] /= sum;
  }

 private:
  const T* s_;
  const int32_t* expert_;
  int64_t experts_, k_;
  bool all_;
};

// By choice and expert, how many of these rows' choices fell on it.
Tensor choice_counts(const Tensor& choices, int64_t experts) {
  const int64_t k = choices.dim(1);
  Tensor counts = choices.like({k, experts}, DType::kI64, "top_k_route.counts");
  counts.fill_zero();
  const auto* expert = choices.data<int32_t>();
  for (int64_t i = 0; i < choices.count(); ++i) {
    ++counts.data<int64_t>()[i % k * experts + expert[i]];
  }
  return counts;
}

}  // namespace

void top_k(Tensor& expert, const Tensor& logits) {
  const int64_t k = expert.dim(1), E = logits.dim(1);
  auto* to = expert.data<int32_t>();
  dispatch(logits.dtype(), [&]<class Any>() {
    using T = Accumulator<Any>;
    const T* s = logits.data<T>();
    parallel_for(logits.dim(0), kRowGrain, [=](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) top_k_row(to + m * k, s + m * E, k, E);
    });
  });
}

void assign_slots(TopKRoute& route, const TopKRule& rule, int64_t experts) {
  const int64_t M = route.expert.dim(0), k = rule.k;
  const int64_t pool = rule.pool_rows > 0 ? rule.pool_rows : M, pools = pool > 0 ? M / pool : 0;
  const auto* expert = route.expert.data<int32_t>();
  route.slot = route.expert.like("top_k_route.slot");
  auto* slot = route.slot.data<int32_t>();
  route.demand = route.expert.like({pools, experts}, DType::kI64, "top_k_route.demand");
  route.demand.fill_zero();
  std::vector<int64_t> kept(static_cast<size_t>(experts), 0), served;
  Tensor before;
  if (rule.before && rule.capacity > 0) {
    before = served_before(rule, choice_counts(route.expert, experts));
  }
  for (int64_t p = 0; p < pools; ++p) {
    int64_t* demand = route.demand.data<int64_t>() + p * experts;
    served.assign(static_cast<size_t>(experts), 0);
    for (int64_t c = 0; c < k; ++c) {
      if (!before.empty()) {
        std::copy_n(std::as_const(before).data<int64_t>() + c * experts, experts, served.begin());
      }
      for (int64_t m = p * pool; m < (p + 1) * pool; ++m) {
        const int32_t e = expert[m * k + c];
        const bool room = rule.capacity == 0 || served[static_cast<size_t>(e)] < rule.capacity;
        ++served[static_cast<size_t>(e)];
        ++demand[e];
        slot[m * k + c] = room ? 0 : -1;
        if (room) ++kept[static_cast<size_t>(e)];
      }
    }
  }
  route.plan.rows = M;
  route.plan.groups.offsets.assign(1, 0);
  std::vector<int64_t> next;
  for (const int64_t count : kept) {
    next.push_back(route.plan.groups.rows());
    route.plan.groups.offsets.push_back(next.back() + count);
  }
  const Shape slots{route.plan.groups.rows()};
  route.plan.source = route.expert.like(slots, DType::kI32, "top_k_route.source");
  route.plan.gate = route.expert.like(slots, DType::kI32, "top_k_route.gate");
  auto* source = route.plan.source.data<int32_t>();
  auto* gate = route.plan.gate.data<int32_t>();
  for (int64_t i = 0; i < M * k; ++i) {
    if (slot[i] < 0) continue;
    const int64_t at = next[static_cast<size_t>(expert[i])]++;
    slot[i] = static_cast<int32_t>(at);
    source[at] = static_cast<int32_t>(i / k);
    gate[at] = static_cast<int32_t>(i);
  }
}

void top_k_gates(Tensor& gates, const Tensor& logits, const TopKRoute& route, GateForm form) {
  const int64_t k = gates.dim(1);
  const auto* slot = route.slot.data<int32_t>();
  dispatch(logits.dtype(), [&]<class Any>() {
    using T = Accumulator<Any>;
    const Support<T> support(logits, route, form);
    T* to = gates.data<T>();
    parallel_for(gates.dim(0), kRowGrain, [=, &support](int64_t begin, int64_t end) {
      std::vector<T> p(static_cast<size_t>(support.size()));
      for (int64_t m = begin; m < end; ++m) {
        support.softmax(p.data(), m);
        for (int64_t c = 0; c < k; ++c) {
          const T gate = p[static_cast<size_t>(support.of_choice(m, c))];
          to[m * k + c] = slot[m * k + c] >= 0 ? gate : T(0);
        }
      }
    });
  });
}

void top_k_route_backward(GradSink& dlogits, const Tensor* dgates, const Tensor* dselected,
                          const Tensor& logits, const TopKRoute& route, GateForm form) {
  const int64_t k = route.expert.dim(1), E = logits.dim(1);
  const auto* slot = route.slot.data<int32_t>();
  const auto* expert = route.expert.data<int32_t>();
  dispatch(logits.dtype(), [&]<class Any>() {
    using T = Accumulator<Any>;
    const Support<T> support(logits, route, form);
    T* to = dlogits.out.data<T>();
    const T* from_gates = dgates != nullptr ? dgates->data<T>() : nullptr;
    const T* from_logits = dselected != nullptr ? dselected->data<T>() : nullptr;
    const bool accumulate = dlogits.accumulate;
    parallel_for(logits.dim(0), kRowGrain, [=, &support](int64_t begin, int64_t end) {
      std::vector<T> p(static_cast<size_t>(support.size())), dp(p.size());
      for (int64_t m = begin; m < end; ++m) {
        T* ds = to + m * E;
        if (!accumulate) std::fill(ds, ds + E, T(0));
        for (int64_t c = 0; c < k && from_logits != nullptr; ++c) {
          const int32_t at = slot[m * k + c];
          if (at >= 0) ds[expert[m * k + c]] += from_logits[at];
        }
        if (from_gates == nullptr) continue;
        support.softmax(p.data(), m);
        std::fill(dp.begin(), dp.end(), T(0));
        T mean = 0;  // of dp under p
        for (int64_t c = 0; c < k; ++c) {
          if (slot[m * k + c] < 0) continue;
          const auto i = static_cast<size_t>(support.of_choice(m, c));
          dp[i] = from_gates[m * k + c];
          mean += dp[i] * p[i];
        }
        for (size_t i = 0; i < p.size(); ++i) {
          ds[support.expert(m, static_cast<int64_t>(i))] += p[i] * (dp[i] - mean);
        }
      }
    });
  });
}

}  // namespace anabranch::cpu
