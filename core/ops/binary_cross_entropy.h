// How far the logistic function of some logits is from membership:
//
//   loss = mean over the elements of softplus(z) - m z
//   dz (+)= dloss (sigmoid(z) - m) / count
//
// Membership is a constant of the backward.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// The loss as a scalar of the logits' type; attach_loss gives it its weight.
//
//   logits  [M, E]  z, float32 or float64
//   member  [M, E]  m, uint8, 0 or 1
//   loss    [1]
//
// Keeps logits and member. Throws Error if types or shapes do not fit.
Var binary_cross_entropy(const Var& logits, const Tensor& member);

namespace cpu {

double binary_cross_entropy_forward(const Tensor& logits, const Tensor& member);
void binary_cross_entropy_backward(GradSink& dlogits, double dloss, const Tensor& logits,
                                   const Tensor& member);

}  // namespace cpu

namespace cuda {

void binary_cross_entropy_forward(Tensor& loss, const Tensor& logits, const Tensor& member);
void binary_cross_entropy_backward(GradSink& dlogits, const Tensor& dloss, const Tensor& logits,
                                   const Tensor& member);

}  // namespace cuda
}  // namespace anabranch
