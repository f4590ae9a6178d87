// AdamW: Adam with decoupled weight decay, on a flat range of parameters.
//
//   p <- p - lr wd p
//   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   g the gradient times grad_scale
//   p <- p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//
// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2, with
// the decay multiplied by the learning rate as PyTorch does.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch {

struct AdamwStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  int64_t step = 1;       // t, from 1
  double grad_scale = 1;  // multiplies the gradient before it is used
};

// One step, in place.
//
//   master, m, v, grad  equal counts, all float32 or all float64
//   value               receives the rounded master: bfloat16, as many elements; may be null
//
// Throws Error if they do not fit or step < 1.
void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, Tensor* value,
           const AdamwStep& step);

namespace cpu {

void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, Tensor* value,
           const AdamwStep& step);

}  // namespace cpu

namespace cuda {

void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, Tensor* value,
           const AdamwStep& step);

}  // namespace cuda
}  // namespace anabranch
