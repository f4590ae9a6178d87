#include "parallel/pool_choice.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/sort_key.h"
#include "parallel/collectives.h"
#include "parallel/pool_rows.h"

namespace anabranch {
namespace {

constexpr int64_t kRoundBytes = int64_t{64} << 10;
constexpr int64_t kCountBytes = size_of(DType::kI64);
constexpr int kMostBits = 16;

int64_t digits_of(DType type, int bits) { return (8 * size_of(type) + bits - 1) / bits; }

// Of the counts by digits of `bits` bits.
int64_t digits_cost(const PoolScores& pool, int bits) {
  const int64_t counts =
      int64_t{2} * (pool.ranks - 1) * kCountBytes * (pool.experts << bits) / pool.ranks;
  return digits_of(pool.type, bits) * (kRoundBytes + counts);
}

// Some bits of a key.
struct Digit {
  int low, bits;

  template <class Key>
  [[nodiscard]] int64_t of(Key key) const {
    return static_cast<int64_t>((key >> low) & ((Key{1} << bits) - 1));
  }
};

// Where an expert's k-th key is looked for.
template <class Key>
struct Search {
  std::vector<Key> keys;  // of this rank's rows, those that begin as the k-th does
  Key kth = 0;            // what is known of it
  int64_t place = 0;      // of the k-th among such keys of all ranks, from 1

  // counts  [2^bits]  of such keys by `digit`, over all ranks
  void narrow(const Digit& digit, const int64_t* counts) {
    int64_t value = (int64_t{1} << digit.bits) - 1;
    for (; counts[value] < place; --value) place -= counts[value];
    kth |= static_cast<Key>(value) << digit.low;
    std::erase_if(keys, [&](Key key) { return digit.of(key) != value; });
  }
};

template <class A>
using Searches = std::vector<Search<decltype(sort_key(A()))>>;

// One for each expert; its keys are in the end those equal to the k-th.
template <class A>
Searches<A> find_kth(const Tensor& scores, int64_t k, int64_t pool_rows, Group& group) {
  const int64_t M = scores.dim(0), E = scores.dim(1);
  const int key_bits = 8 * static_cast<int>(sizeof(A));
  const int bits = PoolScores{pool_rows, E, group.size(), scores.dtype()}.digit_bits();
  const A* from = scores.data<A>();
  Searches<A> all(static_cast<size_t>(E));
  const auto for_experts = [&](const auto& body) {
    parallel_for(E, 1, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) body(e, all[static_cast<size_t>(e)]);
    });
  };
  for_experts([&](int64_t e, auto& search) {
    search.place = k;
    search.keys.reserve(static_cast<size_t>(M));
    for (int64_t m = 0; m < M; ++m) search.keys.push_back(sort_key(from[m * E + e]));
  });
  const int64_t width = int64_t{1} << bits;
  Tensor counts = scores.like({E, width}, DType::kI64, "pool_choice.counts");
  auto* count = counts.data<int64_t>();
  for (int high = key_bits; high > 0; high -= bits) {
    const Digit digit{std::max(high - bits, 0), std::min(bits, high)};
    counts.fill_zero();
    for_experts([&](int64_t e, const auto& search) {
      for (const auto key : search.keys) ++count[e * width + digit.of(key)];
    });
    group.all_reduce_sum(counts).wait();
    const int64_t left = std::accumulate(count, count + width, int64_t{0});
    AB_CHECK(high < key_bits || left == pool_rows, "[pool_choice] a pool of ", pool_rows,
             " rows, but the ranks have ", left);
    for_experts([&](int64_t e, auto& search) { search.narrow(digit, count + e * width); });
  }
  return all;
}

// The rows that an expert takes: those of larger keys than `kth`, and the first `ties` of its own.
template <class A, class Key>
std::vector<int32_t> rows_taken(const Tensor& scores, int64_t e, Key kth, int64_t ties,
                                SlotOrder order) {
  const int64_t E = scores.dim(1);
  const A* from = scores.data<A>();
  const auto key_of = [&](int64_t row) { return sort_key(from[row * E + e]); };
  std::vector<int32_t> rows;
  for (int64_t m = 0; m < scores.dim(0); ++m) {
    const Key key = key_of(m);
    if (key > kth || (key == kth && ties-- > 0)) rows.push_back(static_cast<int32_t>(m));
  }
  if (order == SlotOrder::kAffinity) {
    std::ranges::stable_sort(rows, [&](int32_t a, int32_t b) { return key_of(a) > key_of(b); });
  }
  return rows;
}

SlotPlan plan_of(const std::vector<std::vector<int32_t>>& taken, const Tensor& scores) {
  const int64_t E = scores.dim(1);
  SlotPlan plan;
  plan.rows = scores.dim(0);
  for (const auto& rows : taken) {
    plan.groups.offsets.push_back(plan.groups.rows() + std::ssize(rows));
  }
  const Shape slots{plan.groups.rows()};
  plan.source = scores.like(slots, DType::kI32, "pool_choice.source");
  plan.gate = scores.like(slots, DType::kI32, "pool_choice.gate");
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

template <class A>
ExpertChoice choose(const Tensor& scores, const ExpertChoiceRule& rule, int64_t pool_rows,
                    Group& group) {
  const int64_t E = scores.dim(1);
  ExpertChoice choice;
  choice.k = rows_per_expert(rule.capacity, pool_rows, E);
  choice.kth = scores.like({1, E}, scores.dtype(), "pool_choice.kth");
  const Searches<A> all = find_kth<A>(scores, choice.k, pool_rows, group);
  std::vector<int64_t> ties;
  for (const auto& search : all) ties.push_back(std::ssize(search.keys));
  const std::vector<int64_t> before = PoolCounts(ties, E, group).before();
  std::vector<std::vector<int32_t>> taken(all.size());
  A* kth = choice.kth.data<A>();
  parallel_for(E, 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      const auto i = static_cast<size_t>(e);
      kth[e] = of_sort_key(all[i].kth);
      taken[i] = rows_taken<A>(scores, e, all[i].kth, all[i].place - before[i], rule.order);
    }
  });
  choice.plan = plan_of(taken, scores);
  return choice;
}

// Rows of the pool.
int64_t check_pool(const Tensor& scores, const ExpertChoiceRule& rule, const Group& group) {
  AB_CHECK(scores.shape().rank() == 2 && scores.dim(1) > 0 &&
               scores.dtype() == accumulator_of(scores.dtype()) && scores.count() <= INT32_MAX,
           "[pool_choice] the scores are ", name_of(scores.dtype()), scores.shape(),
           " but need [rows, experts] of float32 or float64");
  AB_CHECK(scores.device().is_cpu(), "[pool_choice] no kernel for this device in this build");
  const int64_t rows = rule.pool_rows > 0 ? rule.pool_rows : group.size() * scores.dim(0);
  AB_CHECK(rows > 0 && scores.dim(0) <= rows, "[pool_choice] a pool of ", rows, " rows, but ",
           scores.dim(0), " are here");
  AB_CHECK(rule.capacity > 0, "[pool_choice] the capacity is ", rule.capacity,
           " but must be positive");
  return rows;
}

}  // namespace

int PoolScores::digit_bits() const {
  int best = 1;
  for (int bits = 2; bits <= kMostBits; ++bits) {
    if (digits_cost(*this, bits) < digits_cost(*this, best)) best = bits;
  }
  return best;
}

int64_t PoolScores::digits() const { return digits_of(type, digit_bits()); }

int64_t PoolScores::gather_cost() const {
  return kRoundBytes + (ranks - 1) * (rows / ranks) * experts * size_of(type);
}

int64_t PoolScores::radix_cost() const {
  return digits_cost(*this, digit_bits()) + kRoundBytes + (ranks - 1) * kCountBytes * experts;
}

ExpertChoice choose_in_pool(const Tensor& scores, const ExpertChoiceRule& rule, Group* group) {
  if (group == nullptr || group->size() == 1) return expert_choice(scores, rule);
  const int64_t rows = check_pool(scores, rule, *group);
  const PoolScores pool{rows, scores.dim(1), group->size(), scores.dtype()};
  return pool.method() == PoolMethod::kGather ? choose_by_gather(scores, rule, *group)
                                              : choose_by_radix(scores, rule, *group);
}

ExpertChoice choose_by_gather(const Tensor& scores, const ExpertChoiceRule& rule, Group& group) {
  const int64_t rows = check_pool(scores, rule, group), mine = scores.dim(0);
  AB_CHECK(rows == mine * group.size(), "[pool_choice] a pool of ", rows, " rows over ",
           group.size(), " ranks, but ", mine, " are here");
  ExpertChoice choice = expert_choice(rows_of_all(scores, group), rule);
  choice.plan = slots_of(choice.plan, group.rank() * mine, mine);
  return choice;
}

ExpertChoice choose_by_radix(const Tensor& scores, const ExpertChoiceRule& rule, Group& group) {
  const int64_t rows = check_pool(scores, rule, group);
  return scores.dtype() == DType::kF32 ? choose<float>(scores, rule, rows, group)
                                       : choose<double>(scores, rule, rows, group);
}

}  // namespace anabranch
