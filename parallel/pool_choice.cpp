#include "parallel/pool_choice.h"

#include <algorithm>
#include <numeric>

#include "core/ops/radix_select.h"
#include "parallel/collectives.h"
#include "parallel/pool_rows.h"

namespace anabranch {
namespace {

constexpr int64_t kRoundBytes = int64_t{64} << 10;
constexpr int64_t kCountBytes = size_of(DType::kI64);

int64_t digits_of(DType type, int bits) { return (8 * size_of(type) + bits - 1) / bits; }

// Of the counts by digits of `bits` bits.
int64_t digits_cost(const PoolScores& pool, int bits) {
  const int64_t counts =
      int64_t{2} * (pool.ranks - 1) * kCountBytes * (pool.experts << bits) / pool.ranks;
  return digits_of(pool.type, bits) * (kRoundBytes + counts);
}

// Whether as many rows were counted as the pool has; on a GPU the host would have to wait.
void check_rows(const Tensor& counts, int64_t pool_rows) {
  if (!counts.device().is_cpu()) return;
  const auto of_expert = counts.span<int64_t>().first(static_cast<size_t>(counts.dim(1)));
  const int64_t rows = std::accumulate(of_expert.begin(), of_expert.end(), int64_t{0});
  AB_CHECK(rows == pool_rows, "[pool_choice] a pool of ", pool_rows, " rows, but the ranks have ",
           rows);
}

// Every expert's k-th score in the pool: all digits of it are known then.
RadixSelect find_kth(const Tensor& scores, int64_t k, const PoolScores& pool, Group& group) {
  RadixSelect select = radix_select(scores, k);
  const int bits = pool.digit_bits();
  const int first = static_cast<int>(8 * size_of(pool.type));
  for (int high = first; high > 0; high -= bits) {
    const KeyDigit digit{std::max(high - bits, 0), std::min(bits, high)};
    const Tensor counts = digit_counts(select, digit);
    group.all_reduce_sum(counts).wait();
    if (high == first) check_rows(counts, pool.rows);
    take_digit(select, digit, counts);
  }
  return select;
}

// Rows of the pool.
int64_t check_pool(const Tensor& scores, const ExpertChoiceRule& rule, const Group& group) {
  AB_CHECK(scores.shape().rank() == 2 && scores.dim(1) > 0 &&
               scores.dtype() == accumulator_of(scores.dtype()) && scores.count() <= INT32_MAX,
           "[pool_choice] the scores are ", name_of(scores.dtype()), scores.shape(),
           " but need [rows, experts] of float32 or float64");
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
  for (int bits = 2; bits <= kMostDigitBits; ++bits) {
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
  const int64_t rows = check_pool(scores, rule, group), E = scores.dim(1);
  ExpertChoice choice;
  choice.k = rows_per_expert(rule.capacity, rows, E);
  const RadixSelect select =
      find_kth(scores, choice.k, {rows, E, group.size(), scores.dtype()}, group);
  const Tensor ties = digit_counts(select, {0, 0}).reshape({1, E});
  choice.plan = slots_taken(select, PoolCounts(ties, group).before(), rule.order);
  choice.kth = kth_scores(select);
  return choice;
}

}  // namespace anabranch
