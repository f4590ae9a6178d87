// Softmax over the last axis, for mixtures of few parts.
//
//   p_k = exp(l_k - max l) / sum_j exp(l_j - max l)
//   dl_k = p_k (dp_k - sum_j dp_j p_j)
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// The softmax of each row.
//
//   logits, p  [..., K]  float32, in a float64 run float64
//
// Keeps p. Throws Error if the logits are bf16.
Var softmax(const Var& logits);

namespace cpu {

void softmax_forward(Tensor& p, const Tensor& logits);
void softmax_backward(GradSink& dlogits, const Tensor& dp, const Tensor& p);

}  // namespace cpu

namespace cuda {

void softmax_forward(Tensor& p, const Tensor& logits);
void softmax_backward(GradSink& dlogits, const Tensor& dp, const Tensor& p);

}  // namespace cuda
}  // namespace anabranch
