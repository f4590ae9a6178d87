#include "core/ops/expert_choice.h"

#include <cmath>

#include "core/base/build.h"

namespace anabranch {
namespace {

void check_scores(const char* op, const Tensor& scores) {
  AB_CHECK(scores.shape().rank() == 2 && scores.dim(1) > 0 &&
               scores.dtype() == accumulator_of(scores.dtype()),
           "[", op, "] the scores are ", name_of(scores.dtype()), scores.shape(),
           " but need [rows, experts] of float32 or float64");
  AB_CHECK(scores.count() <= INT32_MAX, "[", op, "] more scores than an int32 counts");
}

void choose(ExpertChoice& choice, const Tensor& scores, const ExpertChoiceRule& rule) {
  if (scores.device().is_cpu()) return cpu::expert_choice(choice, scores, rule);
  if constexpr (build::kCuda) return cuda::expert_choice(choice, scores, rule);
  AB_FAIL("[expert_choice] no kernel for this device in this build");
}

}  // namespace

int64_t rows_per_expert(double capacity, int64_t pool_rows, int64_t experts) {
  const double share = capacity * static_cast<double>(pool_rows) / static_cast<double>(experts);
  return std::clamp<int64_t>(static_cast<int64_t>(std::floor(share + 0.5)), 1, pool_rows);
}

ExpertChoice expert_choice(const Tensor& scores, const ExpertChoiceRule& rule) {
  check_scores("expert_choice", scores);
  const int64_t M = scores.dim(0), E = scores.dim(1), pool = rule.pool_rows;
  AB_CHECK(M > 0 && pool >= 0 && (pool == 0 || M % pool == 0), "[expert_choice] pools of ", pool,
           " rows do not divide ", M, " rows");
  AB_CHECK(rule.capacity > 0, "[expert_choice] the capacity is ", rule.capacity,
           " but must be positive");
  ExpertChoiceRule exact = rule;
  if (exact.pool_rows == 0) exact.pool_rows = M;
  const int64_t pools = M / exact.pool_rows;
  ExpertChoice choice;
  choice.k = rows_per_expert(rule.capacity, exact.pool_rows, E);
  choice.kth = scores.like({pools, E}, scores.dtype(), "expert_choice.kth");
  choice.plan.rows = M;
  for (int64_t e = 0; e < E; ++e) {
    choice.plan.groups.offsets.push_back((e + 1) * pools * choice.k);
  }
  const Shape slots{choice.plan.groups.rows()};
  choice.plan.source = scores.like(slots, DType::kI32, "expert_choice.source");
  choice.plan.gate = scores.like(slots, DType::kI32, "expert_choice.gate");
  choose(choice, scores, exact);
  return choice;
}

SlotPlan slots_of(const SlotPlan& plan, int64_t first, int64_t rows) {
  AB_CHECK(0 <= first && first + rows <= plan.rows, "[slots_of] rows ", first, " to ", first + rows,
           " of ", plan.rows);
  if constexpr (build::kCuda) {
    if (plan.source.device().is_cuda()) return cuda::slots_of(plan, first, rows);
  }
  const int64_t E = plan.groups.count();
  std::vector<int32_t> source, gate;
  SlotPlan own;
  own.rows = rows;
  for (int64_t e = 0; e < E; ++e) {
    for (int64_t s = plan.groups.begin(e); s < plan.groups.end(e); ++s) {
      const int64_t row = plan.source.data<int32_t>()[s] - first;
      if (row < 0 || row >= rows) continue;
      source.push_back(static_cast<int32_t>(row));
      gate.push_back(static_cast<int32_t>(plan.gate.data<int32_t>()[s] - first * E));
    }
    own.groups.offsets.push_back(std::ssize(source));
  }
  const Shape slots{own.groups.rows()};
  own.source = plan.source.like(slots, DType::kI32, "slots_of.source");
  own.gate = plan.source.like(slots, DType::kI32, "slots_of.gate");
  std::copy(source.begin(), source.end(), own.source.data<int32_t>());
  std::copy(gate.begin(), gate.end(), own.gate.data<int32_t>());
  return own;
}

SlotPlan select_by_threshold(const Tensor& scores, const Tensor& threshold) {
  check_scores("select_by_threshold", scores);
  AB_CHECK(threshold.count() == scores.dim(1) && threshold.dtype() == scores.dtype(),
           "[select_by_threshold] the thresholds are ", name_of(threshold.dtype()),
           threshold.shape(), " for scores of ", name_of(scores.dtype()), scores.shape());
  if constexpr (build::kCuda) {
    if (scores.device().is_cuda()) return cuda::slots_by_threshold(scores, threshold);
  }
  Tensor mask = scores.like(scores.shape(), DType::kU8, "select_by_threshold.mask");
  cpu::threshold_mask(mask, scores, threshold);
  return cpu::slots_of_mask(mask);
}

SlotPlan select_by_mask(const Tensor& mask) {
  AB_CHECK(mask.shape().rank() == 2 && mask.dtype() == DType::kU8 && mask.count() <= INT32_MAX,
           "[select_by_mask] the mask is ", name_of(mask.dtype()), mask.shape(),
           " but needs [rows, experts] of uint8");
  if constexpr (build::kCuda) {
    if (mask.device().is_cuda()) return cuda::slots_of_mask(mask);
  }
  return cpu::slots_of_mask(mask);
}

SlotPlan select_positive(const Tensor& logits) {
  check_scores("select_positive", logits);
  if constexpr (build::kCuda) {
    if (logits.device().is_cuda()) return cuda::slots_of_positive(logits);
  }
  Tensor mask = logits.like(logits.shape(), DType::kU8, "select_positive.mask");
  cpu::positive_mask(mask, logits);
  return cpu::slots_of_mask(mask);
}

Tensor membership(const SlotPlan& plan) {
  Tensor member = plan.gate.like({plan.rows, plan.groups.count()}, DType::kU8, "membership");
  if constexpr (build::kCuda) {
    if (member.device().is_cuda()) {
      cuda::mark_gates(member, plan.gate);
      return member;
    }
  }
  member.fill_zero();
  const std::span<uint8_t> marks = member.span<uint8_t>();
  for (const int32_t i : plan.gate.span<int32_t>()) marks[static_cast<size_t>(i)] = 1;
  return member;
}

}  // namespace anabranch
