// Rows of a tensor as tensors of their own, and back; and one row added to all.
//
//   split_rows   y_k = x[k R .. (k + 1) R),   join_rows the other way
//   add_row      y_n = x_n + b,   db = sum_n dy_n
#pragma once

#include <span>
#include <vector>

#include "core/autograd/tape.h"

namespace anabranch {

// The shape of as many rows as are said, and rows [first, first + count) of x as a view.
Shape with_rows(const Shape& shape, int64_t rows);
Tensor rows_of(const Tensor& x, int64_t first, int64_t count);

// x [N, ...] as tensors of R rows, the last of what is left: views of x. Keeps nothing.
std::vector<Var> split_rows(const Var& x, int64_t rows);
// The same of so many rows each, N in all; some may have none.
std::vector<Var> split_rows(const Var& x, const std::vector<int64_t>& counts);

// `whole`, whose rows are the values of `parts`, one after the other: views of it. Keeps nothing;
// the parts' gradients are views too. Throws Error if they are not.
Var join_rows(const Tensor& whole, std::span<const Var> parts);

// Adds a bias to a sum over ranks before that is rounded.
//
//   x     [N, C]  of `type` or its accumulator's; its gradient has y's type all the same
//   b     [C]     in the accumulator's type
//   y     [N, C]  of `type`
//
// Keeps nothing. Throws Error if shapes or types do not fit.
Var add_row(const Var& x, Param& b, DType type);

namespace cpu {

void add_row(Tensor& y, const Tensor& x, const Tensor& b);

}  // namespace cpu

namespace cuda {

void add_row(Tensor& y, const Tensor& x, const Tensor& b);
// db (+)= the sum over the rows of dy.
void add_row_backward(GradSink& db, const Tensor& dy);

}  // namespace cuda
}  // namespace anabranch
