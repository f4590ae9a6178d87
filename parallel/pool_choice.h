// Expert choice in a pool whose rows lie on the ranks of a group.
//
//   gather  every rank gets all scores, chooses, and keeps what is of its rows
//   radix   the ranks find each expert's k-th score together, one digit after the other: they count
//           their scores by the next digit, add up the counts, and go on with those scores alone
//           that have the digit which the k-th has. Then they know how many equal to it are on the
//           ranks before, so that the earlier rows get the places that are left.
//
// Both are exact and find the same to the bit, ties, zeros of both signs and NaN included; which is
// taken is a matter of time. What a rank receives, in bytes, where a round of messages counts as R
// = kRoundBytes besides, about what could be sent in its latency:
//
//   gather  R + (n - 1) M E w
//   radix   min over b of  D (R + 2 (n - 1) / n 8 E 2^b) + R + (n - 1) 8 E,  D = ceil(8 w / b)
//
// with n ranks, M rows of each, E experts, w bytes of a score, D digits of b bits, at most 12.
//
// On a GPU the host waits for nothing; it does not know the groups of the plan.
#pragma once

#include "core/ops/expert_choice.h"
#include "parallel/comm/group.h"

namespace anabranch {

enum class PoolMethod : uint8_t { kGather, kRadix };

// Of a pool whose rows lie over `ranks`.
struct PoolScores {
  int64_t rows, experts;  // of the pool
  int ranks;
  DType type;

  // b, with which radix costs least; and D.
  [[nodiscard]] int digit_bits() const;
  [[nodiscard]] int64_t digits() const;
  [[nodiscard]] int64_t gather_cost() const;
  [[nodiscard]] int64_t radix_cost() const;

  [[nodiscard]] PoolMethod method() const {
    return gather_cost() <= radix_cost() ? PoolMethod::kGather : PoolMethod::kRadix;
  }
};

// What expert_choice() chooses among the scores of all ranks, of this rank's rows: its slots are
// theirs, kth is the pool's.
//
//   scores  [M, E]  this rank's, float32 or float64
//   rule            pool_rows is the sum of M over ranks, which are consecutive; 0: size * M. Alone
//                   a rank may have several pools
//   group           null: alone
//
// All ranks of the group call it in one order. Throws Error if the rule does not fit the scores; on
// a GPU not where ranks have other numbers of rows than it says.
ExpertChoice choose_in_pool(const Tensor& scores, const ExpertChoiceRule& rule, Group* group);

// The same by a method of one's own choice.
//
//   scores  [M, E]  kGather: as many rows on every rank; kRadix: any number, also none
ExpertChoice choose_by_gather(const Tensor& scores, const ExpertChoiceRule& rule, Group& group);
ExpertChoice choose_by_radix(const Tensor& scores, const ExpertChoiceRule& rule, Group& group);

}  // namespace anabranch
