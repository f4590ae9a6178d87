// The load balance loss of token choice, for pools of T rows and E experts:
//
//   loss = mean over pools of E sum_e f_e P_e,   P_e = mean over the pool's rows of softmax(s)_e
//   ds_e (+)= dloss E / (T pools) p_e (f_e - sum_j p_j f_j)
//
// f_e is the share of choices that fell on e, a constant of the backward: count_e / T, which sums
// to k, or count_e / (T k), which sums to 1. A perfect balance gives that sum.
//
// Where a pool lies on several ranks, counts are those of the whole pool, P of the rank's own rows,
// and the loss is the mean over ranks.
//
// Source: Fedus et al., "Switch Transformers", 2021, equations 4 to 6.
#pragma once

#include <vector>

#include "core/autograd/tape.h"

namespace anabranch {

struct BalanceRule {
  int64_t pool_rows = 0;  // consecutive rows that are balanced together; 0: all
  int64_t choices = 1;    // what counts are divided by besides T: 1, or k
  int64_t ranks = 1;      // that have as many rows each of every pool
};

// The loss as a scalar of the logits' type; attach_loss gives it its weight.
//
//   logits  [M, E]      float32 or float64
//   counts  [pools, E]  int64, beside them: how many choices of each pool fell on each expert
//   loss    [1]
//
// Keeps logits and counts. Throws Error if the rule or the counts do not fit the logits.
Var balance_loss(const Var& logits, const Tensor& counts, const BalanceRule& rule = {});

namespace cpu {

// shares: f of each pool and expert. Returns the loss.
double balance_loss_forward(const Tensor& logits, const std::vector<double>& shares,
                            int64_t pool_rows);
void balance_loss_backward(GradSink& dlogits, double dloss, const Tensor& logits,
                           const std::vector<double>& shares, int64_t pool_rows);

}  // namespace cpu

namespace cuda {

// Counts of each pool and expert, int64; a share is a count times `per_count`.
struct BalanceShares {
  Tensor counts;
  int64_t pool_rows;
  double per_count;
};

void balance_loss_forward(Tensor& loss, const Tensor& logits, const BalanceShares& shares);
void balance_loss_backward(GradSink& dlogits, const Tensor& dloss, const Tensor& logits,
                           const BalanceShares& shares);

}  // namespace cuda
}  // namespace anabranch
