// Muon: momentum, orthogonalised, with a second moment per row or column and cautious decay.
//
//   v = Nesterov's momentum of g,  u = polar(v)                          (matrix_batch.h, polar.h)
//   q_i = mean of squares of row i of u if rows >= cols, else of column i
//   s <- s + (1 - beta2) (q - s),  u_i <- u_i f / sqrt(max(s_i, 1e-10)),  f such that |u| stays
//   w <- w - r u - r weight_decay w [u w >= 0],  r = lr sqrt(max(1, rows / cols))
//
// Source: nanochat of February 2026; Jordan et al., "Muon", 2024; Li et al., "NorMuon", 2025
// (arXiv 2510.05491).
#pragma once

#include "core/ops/polar.h"

namespace anabranch {

struct MuonStep {
  double lr = 0, momentum = 0.95, beta2 = 0.95, weight_decay = 0;
  bool nesterov = true;
  double grad_scale = 1;        // multiplies the gradient before it is used
  DType compute = DType::kF32;  // of polar's products
  PolarForm form = PolarForm::polar_express();
};

// One step of each matrix of a batch, in place. Returns how many matrices were left as they are,
// with their state, because the update was not finite. On a GPU it returns 0 without waiting, and
// adds that number to rejected[0].
//
//   master, m, grad  [S, rows, cols] or [rows, cols], all float32 or all float64
//   s                [S, rows] if rows >= cols, else [S, cols]; without S for a single matrix
//   value            receives the rounded master: bfloat16, as master; may be null
//   rejected         [1] float64, used on a GPU only; may be null
//
// Throws Error if they do not fit.
int64_t muon(Tensor& master, Tensor& m, Tensor& s, const Tensor& grad, Tensor* value,
             const MuonStep& step, Tensor* rejected = nullptr);

namespace cpu {

int64_t muon(Tensor& master, Tensor& m, Tensor& s, const Tensor& grad, Tensor* value,
             const MuonStep& step);

}  // namespace cpu

namespace cuda {

void muon(Tensor& master, Tensor& m, Tensor& s, const Tensor& grad, Tensor* value,
          const MuonStep& step, Tensor* rejected);

}  // namespace cuda
}  // namespace anabranch
