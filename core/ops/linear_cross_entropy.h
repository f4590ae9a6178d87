// The loss of a language model from the last hidden state, without all logits at once.
//
//   l = x w^T,   y = scale * sum over rows n with target[n] >= 0 of -log softmax(l[n])[target[n]]
//   dl[n] = scale * (softmax(l[n]) - onehot(target[n])),   dx = dl w,   dw (+)= dl^T x
//
// The loss is a sum whose scale is known beforehand, so dl is known as soon as l is: a piece of
// rows at a time, the forward makes l, turns it into dl and adds dl's part of both gradients, and
// no logit is computed twice or kept.
//
// With a softcap c the loss is that of c tanh(l / c), as in Gemma 2, and dl has the factor
// 1 - tanh^2(l / c).
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// The scaled sum of the rows' losses.
//
//   x        [N, C]  hidden states; more leading axes are rows too
//   w        [V, C]  as x
//   targets  [N]     int32 in [0, V), or -1 for a row without a loss
//   scale            factor of the sum: 1 / (target tokens of the whole step), say
//   softcap          c above; 0 for none
//   y        [1]     float32, in a float64 run float64; summed in double
//
// Writes the gradient of w during the forward, on a tape that runs backward. Keeps dx. Logits are
// float32 (float64); in a bf16 run dl is bf16. A logit that is NaN or infinity makes the loss NaN;
// one of minus infinity is a token of probability 0, so that the loss is infinite if it is a target
// and NaN where a row has no other, and with a softcap it makes the loss NaN too.
// Throws Error (data) on a target out of range, naming its row; Error on a negative softcap; in
// backward, Error if the gradient that arrives is not 1. On a GPU, where nobody waits to look, a
// target out of range makes the loss NaN, and the gradient that arrives is taken to be 1.
Var linear_cross_entropy(const Var& x, Param& w, const Tensor& targets, double scale,
                         double softcap = 0);

// losses[n] = the loss of row n, 0 if it has none.
//
//   losses  [N]  float32, in a float64 run float64
void token_losses(Tensor& losses, const Tensor& x, const Param& w, const Tensor& targets,
                  double softcap = 0);

// logits <- softcap tanh(logits / softcap), as the loss sees them; 0 leaves them. Any floating
// type.
void cap_logits(Tensor& logits, double softcap);

// Where gradients of the sum of the losses, times `scale`, go.
struct CrossEntropyGradients {
  double scale;
  Tensor* dx;  // overwritten; null if unwanted
  GradSink* dw;
};

namespace cpu {

// Rows of `rows` whose logits, of type `sums`, exist at a time.
int64_t cross_entropy_rows(int64_t rows, int64_t vocabulary, DType sums);

// Writes the loss of each row to `losses`, and if `gradients` is not null, those.
void linear_cross_entropy(std::span<double> losses, const Tensor& x, const Tensor& w,
                          const Tensor& targets, double softcap,
                          const CrossEntropyGradients* gradients);

void cap_logits(Tensor& logits, double softcap);

}  // namespace cpu

namespace cuda {

// As the CPU's; more rows, because all of dw is read and written once for each piece of them.
int64_t cross_entropy_rows(int64_t rows, int64_t vocabulary, DType sums);

// The same as the CPU's; losses [N] float64.
void linear_cross_entropy(Tensor& losses, const Tensor& x, const Tensor& w, const Tensor& targets,
                          double softcap, const CrossEntropyGradients* gradients);
// y[0] = scale * the sum of the losses.
void loss_sum(Tensor& y, const Tensor& losses, double scale);

void cap_logits(Tensor& logits, double softcap);

}  // namespace cuda
}  // namespace anabranch
