// Token choice: every row goes to the k experts of its largest logits.
//
//   kSelectedSoftmax  gate[m, c] = exp(s[m, e_c]) / sum_c' exp(s[m, e_c']), over the k selected
//   kProbability      gate[m, c] = exp(s[m, e_c]) / sum_e exp(s[m, e]), over all experts
//
// Among equal logits the lowest index wins; a NaN is smaller than every number. With a capacity,
// every expert has so many slots in each pool of rows: all first choices are served in the order of
// the rows, then all second choices, and so on. A dropped choice has gate 0; the other gates of its
// row stay as they are. Where other ranks have rows of the same pool too, the rule says where the
// choices of these rows stand among all of them.
#pragma once

#include <functional>

#include "core/autograd/tape.h"
#include "core/ops/groups.h"

namespace anabranch {

enum class GateForm : uint8_t { kSelectedSoftmax, kProbability };

struct TopKRule {
  int64_t k = 2;
  GateForm gate = GateForm::kSelectedSoftmax;
  int64_t capacity = 0;   // slots of an expert in a pool; 0: every choice has one
  int64_t pool_rows = 0;  // consecutive rows that share the slots; 0: all
  // How many choices of each expert are served before these rows' first, second, .. ones [k, E],
  // given how many of these rows fell on each [k, E]; int64, beside the logits. Asked if there is a
  // capacity. The rows are one pool then, or a part of one. Empty: these rows are whole pools.
  std::function<Tensor(const Tensor& counts)> before = {};
};

// On a GPU the host learns nothing of what was decided: the plan's groups are on the device. The
// plan has M k slots, or with a capacity as many as there can be, of which some are unused.
struct TopKRoute {
  SlotPlan plan;  // sorted by expert, then by row; gates are indices into `gates`
  Tensor expert;  // [M, k] int32, by falling logit
  Tensor slot;    // [M, k] int32: where each choice stands in the plan; -1 if it was dropped
  Tensor demand;  // [pools, E] int64: how many choices fell on each expert, dropped or not
  Var gates;      // [M, k]
  Var selected;   // [S]: the logit of every slot; 0 of an unused one
};

// Routes every row by its logits.
//
//   logits  [M, E]  float32 or float64
//
// Keeps logits, gates and the plan. Throws Error if the rule does not fit the logits.
TopKRoute top_k_route(const Var& logits, const TopKRule& rule);

// What the rule says is served before. Throws Error unless that is as it must be.
Tensor served_before(const TopKRule& rule, const Tensor& counts);

namespace cpu {

// The experts of each row, by falling logit.
void top_k(Tensor& expert, const Tensor& logits);
// Gives every choice its slot and fills all of the route but the gates and the logits.
void assign_slots(TopKRoute& route, const TopKRule& rule, int64_t experts);
void top_k_gates(Tensor& gates, const Tensor& logits, const TopKRoute& route, GateForm form);
// dlogits (+)= what comes through the gates and through the selected logits; either may be null.
void top_k_route_backward(GradSink& dlogits, const Tensor* dgates, const Tensor* dselected,
                          const Tensor& logits, const TopKRoute& route, GateForm form);

}  // namespace cpu

namespace cuda {

// The experts of each row, and its gates as if none were dropped.
void top_k(Tensor& expert, Tensor& gates, const Tensor& logits, GateForm form);
// Gives every choice its slot and fills all of the route; dropped choices lose their gates. Returns
// the logits of the slots.
Tensor assign_slots(TopKRoute& route, Tensor& gates, const Tensor& logits, const TopKRule& rule);
void top_k_route_backward(GradSink& dlogits, const Tensor* dgates, const Tensor* dselected,
                          const Tensor& logits, const TopKRoute& route, GateForm form);

}  // namespace cuda
}  // namespace anabranch
