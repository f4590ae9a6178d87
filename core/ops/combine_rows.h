// Rows on their way back from the experts, each weighted by its gate:
//
//   y[m] = sum over the slots s of row m of g[gate[s]] z[s], in the order of the slots
//   dz[s] = g[gate[s]] dy[source[s]],   dg[gate[s]] = <dy[source[s]], z[s]>
//
// A row without a slot gives zero; a gate without one has no gradient.
#pragma once

#include <span>

#include "core/autograd/tape.h"
#include "core/ops/groups.h"

namespace anabranch {

// Adds up the slots of each row.
//
//   z      [S, C]     one row for each slot of `plan`
//   gates  any shape  of the accumulator's type; `plan.gate` are flat indices into it
//   y      [M, C]     M = plan.rows
//
// Keeps z, gates and the plan's tensors. Throws Error if the plan does not fit z or gates. On a GPU
// no one looks into the plan's tensors: slots without a gate or a row are unused, and no two slots
// may have the same gate.
Var combine_rows(const Var& z, const Var& gates, const SlotPlan& plan);

// The same with z in pieces, [S_i, C] each, which together are the slots in order. A piece may be
// empty, not all of them. y is written once.
Var combine_rows(std::span<const Var> pieces, const Var& gates, const SlotPlan& plan);

// The gate of each slot, without a gradient: [S] of the gates' type; 0 of an unused one.
Tensor slot_gates(const Tensor& gates, const SlotPlan& plan);

namespace cpu {

// weight[s] = g[gate[s]].
void slot_gates(Tensor& weight, const Tensor& gates, const Tensor& gate);
// dz (+)= and dgates (+)= as above for the slots `first` .. of the plan, which z has; either may be
// null. Gates of other slots get nothing, or 0.
void combine_rows_backward(GradSink* dz, GradSink* dgates, const Tensor& dy, const Tensor& z,
                           const Tensor& weight, const SlotPlan& plan, int64_t first);

}  // namespace cpu

namespace cuda {

void slot_gates(Tensor& weight, const Tensor& gates, const Tensor& gate);
// As on the CPU. The dz of an unused slot is 0.
void combine_rows_backward(GradSink* dz, GradSink* dgates, const Tensor& dy, const Tensor& z,
                           const Tensor& weight, const SlotPlan& plan, int64_t first);

}  // namespace cuda
}  // namespace anabranch
