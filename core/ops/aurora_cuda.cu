#include <algorithm>
#include <cmath>

#include "core/ops/aurora.h"
#include "core/ops/matrix_batch.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// d = 1 / max(|v_i|, eps) of squares |v_i|^2
struct FirstScale {
  double* d;
  const double* squares;
  double eps;

  template <int kN>
  __device__ void at(int64_t i) const {
    for (int64_t j = i; j < i + kN; ++j) {
      const double length = std::sqrt(squares[j]);
      d[j] = 1 / (length > eps ? length : eps);
    }
  }
};

// d <- d (even / max(|u_i|^2, eps^2))^beta
struct NextScale {
  double* d;
  const double* squares;
  double even, eps, beta;

  template <int kN>
  __device__ void at(int64_t i) const {
    for (int64_t j = i; j < i + kN; ++j) {
      const double least = eps * eps;
      d[j] *= std::pow(even / (squares[j] > least ? squares[j] : least), beta);
    }
  }
};

// v <- the update's direction
void direct(Tensor& v, const MatrixBatch& batch, const AuroraStep& step) {
  if (batch.rows == batch.cols) return cuda::polar(v, v, step.compute, step.form);
  const bool of_rows = batch.rows > batch.cols;
  const double even = static_cast<double>(batch.shorter()) / static_cast<double>(batch.longer());
  Tensor d = v.like({batch.count, batch.longer()}, DType::kF64, "aurora"),
         squares = d.like("aurora");
  auto *scales = d.device_data<double>(), *lengths = squares.device_data<double>();
  axis_squares(squares, v, batch, of_rows);
  each_pack<1>(FirstScale{scales, lengths, step.eps}, d.count(), false, v.stream());
  Tensor u = step.iterations > 1 ? v.like("aurora") : Tensor();
  for (int k = 1; k < step.iterations; ++k) {
    scale_axis(u, v, d, batch, of_rows);
    cuda::polar(u, u, step.compute, step.form);
    axis_squares(squares, u, batch, of_rows);
    each_pack<1>(NextScale{scales, lengths, even, step.eps, step.beta}, d.count(), false,
                 v.stream());
  }
  scale_axis(v, v, d, batch, of_rows);
  cuda::polar(v, v, step.compute, step.form);
}

double shape_factor(const MatrixBatch& batch, AuroraStep::ShapeScale kind) {
  if (kind == AuroraStep::ShapeScale::kRms) {
    return std::min(1.0, 0.2 * std::sqrt(static_cast<double>(batch.longer())));
  }
  return std::sqrt(
      std::max(1.0, static_cast<double>(batch.rows) / static_cast<double>(batch.cols)));
}

}  // namespace

void aurora(Tensor& master, Tensor& m, const Tensor& grad, Tensor* value, const AuroraStep& step,
            Tensor* rejected) {
  const MatrixBatch batch = matrix_batch("aurora", master);
  const MatrixStep common{step.lr * shape_factor(batch, step.shape_scale),
                          step.lr * step.weight_decay,
                          step.momentum,
                          step.grad_scale,
                          step.nesterov,
                          false};
  Tensor u = master.like("aurora");
  momentum_direction(u, m, grad, common);
  direct(u, batch, step);
  Tensor squares = u.like({batch.count, batch.rows}, DType::kF64, "aurora"),
         norms = u.like({batch.count}, DType::kF64, "aurora");
  axis_squares(squares, u, batch, true);
  sum_each(norms, squares);
  matrix_step({master, m, grad, value}, batch, u, nullptr, true, norms, rejected, common);
}

}  // namespace anabranch::cuda
