// The nearest orthogonal matrix, approximately: Newton-Schulz iterations of a polynomial.
//
//   X <- X / (scale |X| + eps);  then for each (a, b, c):  A = X X^T,  X <- a X + (b A + c A^2) X
//
// |X| is the Frobenius norm. Every singular value s takes the way a s + b s^3 + c s^5, towards 1.
// Works with the Gram matrix of the short side: for a tall X, A = X^T X and X <- a X + X (...).
//
// Sources: Jordan et al., "Muon", 2024; Amsel et al., "The Polar Express", 2025.
#pragma once

#include <vector>

#include "core/tensor/tensor.h"

namespace anabranch {

struct PolarForm {
  struct Iteration {
    double a, b, c;
  };

  std::vector<Iteration> iterations;
  double scale = 1, eps = 1e-7;

  // (2, -1.5, 0.5): converges to 1 exactly; Aurora's, with 12 iterations or fewer.
  static PolarForm simple_quintic(int iterations);
  // Five iterations that differ; nanochat's of February 2026.
  static PolarForm polar_express();
  // (3.4445, -4.775, 2.0315) five times: ends within about 0.3 of 1; the first Muon's.
  static PolarForm quintic_2025();
};

// The iterations on each matrix of a batch.
//
//   out, in  [S, rows, cols] or [rows, cols]  float32 or float64, equal; may be the same tensor
//   compute  the products' type: float32 or bfloat16 for float32, float64 for float64
//
// In bfloat16, X, A and the polynomial are rounded to it and all sums are float32, and so is the
// last X. A matrix of zeros stays one; one with a non-finite element becomes NaN. A matrix gives
// the same alone as among others, on a CPU. Throws Error if the tensors do not fit.
void polar(Tensor& out, const Tensor& in, DType compute, const PolarForm& form);

namespace cpu {

void polar(Tensor& out, const Tensor& in, DType compute, const PolarForm& form);

}  // namespace cpu

namespace cuda {

void polar(Tensor& out, const Tensor& in, DType compute, const PolarForm& form);

}  // namespace cuda
}  // namespace anabranch
