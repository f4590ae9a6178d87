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
// <a, b> in the accumulator's type, by fixed blocks.
double dot(const Tensor& a, const Tensor& b);

// Weights and their gradients are tensors of one element each, in rows: w[i * J + j].
//
// ys[i] = sum_j w[i * J + j] xs[j]
void mix(std::span<Tensor> ys, std::span<const Tensor> xs, std::span<const Tensor> weights);
// dws[i * J + j] (+)= <dys[i], xs[j]>, 0 for an empty dys[i].
void add_dots(std::span<GradSink> dws, std::span<const Tensor> dys, std::span<const Tensor> xs);

}  // namespace cpu

namespace cuda {

void mix(std::span<Tensor> ys, std::span<const Tensor> xs, std::span<const Tensor> weights);
void add_dots(std::span<GradSink> dws, std::span<const Tensor> dys, std::span<const Tensor> xs);

}  // namespace cuda
}  // namespace anabranch
