// Expert choice: in every pool of rows each expert takes the k rows of its largest scores.
//
// The order of scores is total: the larger first, among equal ones the earlier row, a NaN last. So
// a choice has exactly k members whatever the ties, and any layout of the rows finds the same.
// Choices are constants of the backward; gates reach it as elements of the scores (combine_rows).
//
// On a GPU the groups of expert_choice() are known to the host; those of the others are not, and
// the plan has as many slots as there can be, of which some are unused.
//
// Source: Zhou et al., "Mixture-of-Experts with Expert Choice Routing", 2022, section 3.2.
#pragma once

#include "core/ops/groups.h"

namespace anabranch {

enum class SlotOrder : uint8_t {
  kTime,     // an expert's rows by index
  kAffinity  // pool by pool, by falling score
};

struct ExpertChoiceRule {
  double capacity = 2;    // experts per row on average: c
  int64_t pool_rows = 0;  // consecutive rows that compete; 0: all
  SlotOrder order = SlotOrder::kTime;
};

struct ExpertChoice {
  SlotPlan plan;  // slots by expert; gates are indices into the scores
  int64_t k = 0;  // rows that each expert takes of each pool
  Tensor kth;     // [pools, E] of the scores' type: the smallest score that was taken
};

// How many rows of a pool an expert takes: c pool / E, rounded half up, at least 1 and at most
// pool.
[[nodiscard]] int64_t rows_per_expert(double capacity, int64_t pool_rows, int64_t experts);

// Chooses by `scores`, [M, E] of float32 or float64. Throws Error if the rule does not fit them.
ExpertChoice expert_choice(const Tensor& scores, const ExpertChoiceRule& rule);

// The slots of `plan` that take the rows [first, first + rows), whose gates are indices into the
// scores of those rows alone: what a rank keeps of a choice among the rows of several.
SlotPlan slots_of(const SlotPlan& plan, int64_t first, int64_t rows);

// The slots of row m and expert e where scores[m, e] >= threshold[e], by index. A NaN takes none.
//
//   scores     [M, E]  float32 or float64
//   threshold  [E]     of the scores' type
SlotPlan select_by_threshold(const Tensor& scores, const Tensor& threshold);

// The slots of row m and expert e where mask[m, e] is not zero, by index.
//
//   mask  [M, E]  uint8
SlotPlan select_by_mask(const Tensor& mask);

// The slots of row m and expert e where logits[m, e] > 0, by index. A NaN takes none.
//
//   logits  [M, E]  float32 or float64
SlotPlan select_positive(const Tensor& logits);

// [M, E] uint8: 1 where an expert holds a row, by a plan whose gates are indices into scores
// [M, E], as those above.
Tensor membership(const SlotPlan& plan);

namespace cpu {

void expert_choice(ExpertChoice& choice, const Tensor& scores, const ExpertChoiceRule& rule);
// mask[m, e] = scores[m, e] >= threshold[e].
void threshold_mask(Tensor& mask, const Tensor& scores, const Tensor& threshold);
// mask[m, e] = logits[m, e] > 0.
void positive_mask(Tensor& mask, const Tensor& logits);
SlotPlan slots_of_mask(const Tensor& mask);

}  // namespace cpu

namespace cuda {

void expert_choice(ExpertChoice& choice, const Tensor& scores, const ExpertChoiceRule& rule);
SlotPlan slots_of(const SlotPlan& plan, int64_t first, int64_t rows);
SlotPlan slots_by_threshold(const Tensor& scores, const Tensor& threshold);
SlotPlan slots_of_mask(const Tensor& mask);
SlotPlan slots_of_positive(const Tensor& logits);
// member = 1 at the gates, whose slots are used; 0 elsewhere.
void mark_gates(Tensor& member, const Tensor& gate);

}  // namespace cuda
}  // namespace anabranch
