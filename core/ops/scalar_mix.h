// Sums of whole tensors with trained scalar weights.
//
//   y_i = sum_j P_ij x_j
//   dx_j = sum_i P_ij dy_i,   dP_ij = <dy_i, x_j>
#pragma once

#include <span>

#include "core/autograd/tape.h"

namespace anabranch {

// Mixes J tensors into I.
//
//   xs  J of one shape and type
//   p   [I, J], in their accumulator type
//
// Keeps xs. dP is summed by fixed blocks. Throws Error if they do not fit.
std::vector<Var> scalar_mix(std::span<const Var> xs, Param& p);

// y = a x + b z for scalars of their own, as the [1]-shaped parameters a and b.
Var scalar_mix(const Var& x, Param& a, const Var& z, Param& b);

namespace cpu {

// out = sum_j factor(j) xs[j], for `weights` [J] that lie `stride` apart.
void weighted_sum(Tensor& out, std::span<const Tensor> xs, const Tensor& weights, int64_t first,
                  int64_t stride);
// Weights beside `like`, in its accumulator type.
Tensor weights_of(std::span<const double> weights, const Tensor& like);
// <a, b> in the accumulator's type, by fixed blocks.
double dot(const Tensor& a, const Tensor& b);

}  // namespace cpu
}  // namespace anabranch
