#include <algorithm>
#include <cmath>
#include <vector>

#include "core/ops/aurora.h"
#include "core/ops/matrix_batch.h"
#include "core/ops/squared_norm.h"

namespace anabranch::cpu {
namespace {

double shape_factor(const MatrixBatch& batch, AuroraStep::ShapeScale kind) {
  if (kind == AuroraStep::ShapeScale::kRms) {
    return std::min(1.0, 0.2 * std::sqrt(static_cast<double>(batch.longer())));
  }
  return std::sqrt(
      std::max(1.0, static_cast<double>(batch.rows) / static_cast<double>(batch.cols)));
}

// v <- the update's direction
void direct(Tensor& v, const MatrixBatch& batch, const AuroraStep& step) {
  if (batch.rows == batch.cols) return cpu::polar(v, v, step.compute, step.form);
  const bool of_rows = batch.rows > batch.cols;
  const double even = static_cast<double>(batch.shorter()) / static_cast<double>(batch.longer());
  std::vector<double> d(static_cast<size_t>(batch.longer())), squares(d.size());
  axis_squares(squares, v, of_rows);
  for (size_t i = 0; i < d.size(); ++i) d[i] = 1 / std::max(std::sqrt(squares[i]), step.eps);
  Tensor u = step.iterations > 1 ? v.like("aurora") : Tensor();
  for (int k = 1; k < step.iterations; ++k) {
    scale_axis(u, v, d, of_rows);
    cpu::polar(u, u, step.compute, step.form);
    axis_squares(squares, u, of_rows);
    for (size_t i = 0; i < d.size(); ++i) {
      d[i] *= std::pow(even / std::max(squares[i], step.eps * step.eps), step.beta);
    }
  }
  scale_axis(v, v, d, of_rows);
  cpu::polar(v, v, step.compute, step.form);
}

}  // namespace

int64_t aurora(Tensor& master, Tensor& m, const Tensor& grad, Tensor* value,
               const AuroraStep& step) {
  const MatrixBatch batch = matrix_batch("aurora", master);
  const MatrixStep common{step.lr * shape_factor(batch, step.shape_scale),
                          step.lr * step.weight_decay,
                          step.momentum,
                          step.grad_scale,
                          step.nesterov,
                          false};
  std::vector<char> rejected(static_cast<size_t>(batch.count), 0);
  each_matrix(batch, [&](int64_t i) {
    Tensor u = master.like({batch.rows, batch.cols}, master.dtype(), "aurora");
    momentum_direction(u, batch.at(m, i), batch.at(grad, i), common);
    direct(u, batch, step);
    if (std::isfinite(cpu::squared_norm(u))) {
      matrix_step({master, m, grad, value}, batch, i, u, common);
    } else {
      rejected[static_cast<size_t>(i)] = 1;
    }
  });
  return std::count(rejected.begin(), rejected.end(), 1);
}

}  // namespace anabranch::cpu
