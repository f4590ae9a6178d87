// A linear map of its own for each group of rows: y[r] = x[r] w_e^T for the rows r of group e.
//
//   dx[r] = dy[r] w_e,   dw_e (+)= sum over the rows r of group e of dy[r]^T x[r]
//
// Sums are float whatever the type (double for float64). A group may be empty (its dw is zero), or
// have all rows. y and dx of a row do not depend on the other rows, nor anything on the number of
// threads. A GPU reads the groups' offsets itself, so that nobody need wait for them.
#pragma once

#include "core/autograd/tape.h"
#include "core/ops/groups.h"

namespace anabranch {

// Maps each row of `x` by the matrix of its group.
//
//   x       [S, K]     rows sorted by group
//   w       [E, M, K]  as x
//   groups             E groups over the S rows
//   y       [S, M]
//
// Keeps x. Throws Error if shapes, types or groups do not fit.
Var grouped_linear(const Var& x, Param& w, const Groups& groups);

// The products that it is made of, on the device of their operands.
void grouped_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Groups& groups);
void grouped_linear_backward(GradSink& dx, const Tensor& dy, const Tensor& w, const Groups& groups);
void grouped_linear_weight_backward(GradSink& dw, const Tensor& dy, const Tensor& x,
                                    const Groups& groups);

namespace cpu {

void grouped_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Groups& groups);
void grouped_linear_backward(GradSink& dx, const Tensor& dy, const Tensor& w, const Groups& groups);
void grouped_linear_weight_backward(GradSink& dw, const Tensor& dy, const Tensor& x,
                                    const Groups& groups);

}  // namespace cpu

namespace cuda {

void grouped_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Groups& groups);
void grouped_linear_backward(GradSink& dx, const Tensor& dy, const Tensor& w, const Groups& groups);
void grouped_linear_weight_backward(GradSink& dw, const Tensor& dy, const Tensor& x,
                                    const Groups& groups);

}  // namespace cuda
}  // namespace anabranch
