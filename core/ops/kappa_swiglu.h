// The gated linear unit whose gate has a slope of its own, set by the router's confidence.
//
//   h = z s(kappa z) u  where x = [z | u] along the last axis, s the logistic function
//   kappa = U^tanh(t),  t[r, j] = c_s score[r] alpha[e, j] + c_b b[e, j] for the rows r of expert e
//
//   with q = z s (1 - s), s at kappa z:
//   dz = dh u (s + kappa q),  du = dh z s,  dt = dh u z q kappa ln U (1 - tanh^2 t)
//   dalpha[e, j] (+)= sum_r dt c_s score[r],  db[e, j] (+)= sum_r dt c_b,
//   dscore[r] = g sum_j dt c_s alpha[e, j],  g the scale of the router's gradient
//
// Sums over rows are made by fixed tiles of rows and added in their order. At U = 1, or with
// neither alpha nor b, h is that of swiglu.
#pragma once

#include "core/autograd/tape.h"
#include "core/ops/groups.h"

namespace anabranch {

struct Kappa {
  double upper = 3;              // U: kappa lies between 1 / U and U; 1 to 8
  double score_scale = 1;        // c_s
  double bias_scale = 1;         // c_b
  double router_grad_scale = 1;  // g
};

// The activation of every slot's expert.
//
//   x       [S, 2F]  gate and up side by side, rows sorted by expert
//   score   [S]      the raw router logit of each row's expert, of the accumulator's type; a null
//                    Var leaves the alpha term out
//   alpha   [E, F]   of the accumulator's type; null leaves its term out
//   b       [E, F]   the same
//   groups           E groups over the S rows
//   h       [S, F]   of x's type
//
// Keeps x and score. Throws Error if shapes, types or groups do not fit or U is out of range.
Var kappa_swiglu(const Var& x, const Var& score, Param* alpha, Param* b, const Groups& groups,
                 const Kappa& kappa = {});

// What both directions of the kernels read; `score`, `alpha` and `b` are null where their term is
// left out.
struct KappaInputs {
  const Tensor& x;
  const Tensor *score, *alpha, *b;
  const Groups& groups;
  Kappa kappa;
};

// Where gradients go; null where none is wanted.
struct KappaSinks {
  GradSink *dx = nullptr, *dscore = nullptr, *dalpha = nullptr, *db = nullptr;
};

namespace cpu {

void kappa_swiglu_forward(Tensor& h, const KappaInputs& in);
void kappa_swiglu_backward(const KappaSinks& out, const Tensor& dh, const KappaInputs& in);

}  // namespace cpu

namespace cuda {

void kappa_swiglu_forward(Tensor& h, const KappaInputs& in);
void kappa_swiglu_backward(const KappaSinks& out, const Tensor& dh, const KappaInputs& in);

}  // namespace cuda
}  // namespace anabranch
