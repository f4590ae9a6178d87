// Aurora: momentum, orthogonalised with a row scaling under which the rows of the update are even.
//
//   v = Nesterov's momentum of g                                         (matrix_batch.h, polar.h)
//   d_i = 1 / max(|v_i|, eps);  `iterations` times:  u = polar(diag(d) v),
//       and between two of them  d_i <- d_i (t / max(|u_i|^2, eps^2))^beta,  t = short / long side
//   w <- w - lr weight_decay w - lr f u,  f of the matrix's shape
//
// i runs over the long side: rows of a tall matrix, columns of a wide one. Square: u = polar(v).
//
// Source: Tilde Research, "Aurora" (arXiv 2606.27715) and its code of May 2026.
#pragma once

#include "core/ops/polar.h"

namespace anabranch {

struct AuroraStep {
  // f: sqrt(max(1, rows / cols)), or min(1, 0.2 sqrt(max(rows, cols))).
  enum class ShapeScale : uint8_t { kAspect, kRms };

  double lr = 0, momentum = 0.95, weight_decay = 0;
  bool nesterov = true;
  int iterations = 2;  // polar's calls for a matrix that is not square
  double beta = 0.5, eps = 1e-7;
  ShapeScale shape_scale = ShapeScale::kAspect;
  double grad_scale = 1;        // multiplies the gradient before it is used
  DType compute = DType::kF32;  // of polar's products
  PolarForm form = PolarForm::simple_quintic(12);
};

// One step of each matrix of a batch, in place. Returns how many matrices were left as they are,
// with their momentum, because the update was not finite. On a GPU it returns 0 without waiting,
// and adds that number to rejected[0].
//
//   master, m, grad  [S, rows, cols] or [rows, cols], all float32 or all float64
//   value            receives the rounded master: bfloat16, as master; may be null
//   rejected         [1] float64, used on a GPU only; may be null
//
// d and diag(d) v are of the master's type. Throws Error if they do not fit or iterations < 1.
int64_t aurora(Tensor& master, Tensor& m, const Tensor& grad, Tensor* value, const AuroraStep& step,
               Tensor* rejected = nullptr);

namespace cpu {

int64_t aurora(Tensor& master, Tensor& m, const Tensor& grad, Tensor* value,
               const AuroraStep& step);

}  // namespace cpu

namespace cuda {

void aurora(Tensor& master, Tensor& m, const Tensor& grad, Tensor* value, const AuroraStep& step,
            Tensor* rejected);

}  // namespace cuda
}  // namespace anabranch
