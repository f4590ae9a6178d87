#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/ops/matrix_batch.h"
#include "core/ops/muon.h"

namespace anabranch::cpu {
namespace {

// Moves the second moments `s` towards the mean squares and turns `squares`, sums of `width`
// squares, into the factors of the update. False, and s as it was, if a square is not finite.
template <class A>
bool reduce_variance(std::span<double> squares, std::span<A> s, int64_t width, double beta2) {
  const double norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  if (!std::isfinite(norm)) return false;
  double scaled = 0;
  for (size_t i = 0; i < squares.size(); ++i) {
    const double mean = squares[i] / static_cast<double>(width);
    const auto before = static_cast<double>(s[i]);
    s[i] = static_cast<A>(before + (mean - before) * (1 - beta2));
    const double moment = std::max(static_cast<double>(s[i]), 1e-10);
    scaled += squares[i] / moment;
    squares[i] = 1 / std::sqrt(moment);
  }
  const double kept = norm / std::max(std::sqrt(scaled), 1e-10);
  for (double& factor : squares) factor *= kept;
  return true;
}

}  // namespace

int64_t muon(Tensor& master, Tensor& m, Tensor& s, const Tensor& grad, Tensor* value,
             const MuonStep& step) {
  const MatrixBatch batch = matrix_batch("muon", master);
  const bool of_rows = batch.rows >= batch.cols;
  const double aspect = static_cast<double>(batch.rows) / static_cast<double>(batch.cols);
  const double rate = step.lr * std::sqrt(std::max(1.0, aspect));
  const MatrixStep common{
      rate, rate * step.weight_decay, step.momentum, step.grad_scale, step.nesterov, true};
  std::vector<char> rejected(static_cast<size_t>(batch.count), 0);
  each_matrix(batch, [&](int64_t i) {
    Tensor u = master.like({batch.rows, batch.cols}, master.dtype(), "muon");
    momentum_direction(u, batch.at(m, i), batch.at(grad, i), common);
    cpu::polar(u, u, step.compute, step.form);
    const auto axis = static_cast<size_t>(batch.longer());
    std::vector<double> factors(axis);
    axis_squares(factors, u, of_rows);
    bool finite = false;
    const auto first = static_cast<size_t>(i) * axis;
    if (s.dtype() == DType::kF64) {
      finite = reduce_variance(factors, s.span<double>().subspan(first, axis), batch.shorter(),
                               step.beta2);
    } else {
      finite = reduce_variance(factors, s.span<float>().subspan(first, axis), batch.shorter(),
                               step.beta2);
    }
    if (!finite) {
      rejected[static_cast<size_t>(i)] = 1;
      return;
    }
    scale_axis(u, u, factors, of_rows);
    matrix_step({master, m, grad, value}, batch, i, u, common);
  });
  return std::count(rejected.begin(), rejected.end(), 1);
}

}  // namespace anabranch::cpu
