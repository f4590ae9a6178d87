#include "runtime/models/stream_measures.h"

#include <algorithm>
#include <cmath>

#include "core/ops/gate_figures.h"
#include "core/ops/gemm.h"
#include "core/ops/scalar_mix.h"

namespace anabranch {
namespace {

constexpr int64_t kProbeRows = 64;

double entropy_of(std::span<const double> p) {
  double sum = 0;
  for (const double v : p) sum -= v > 0 ? v * std::log(v) : 0;
  return sum;
}

// sums[i, j] += <slice i, slice j> of `all` [N, ...], for i <= j.
void add_dots(Tensor& sums, const Tensor& some) {
  const Tensor all = some.on_host();
  const int64_t N = all.dim(0), size = all.count() / N;
  const auto part = [&](int64_t k) { return all.view(k * size, {size}); };
  for (int64_t i = 0; i < N; ++i) {
    for (int64_t j = i; j < N; ++j) {
      sums.data<double>()[i * N + j] += cpu::dot(part(i), part(j));
    }
  }
}

Tensor zeros(Shape shape) {
  Tensor t(shape, DType::kF64);
  t.fill_zero();
  return t;
}

// The mean of the cosine over all pairs, by their scalar products.
double mean_cosine(const Tensor& dots) {
  const int64_t N = dots.dim(0);
  const auto dot = [&](int64_t i, int64_t j) { return dots.data<double>()[i * N + j]; };
  double sum = 0;
  for (int64_t i = 0; i < N; ++i) {
    for (int64_t j = i + 1; j < N; ++j) {
      const double scale = std::sqrt(dot(i, i)) * std::sqrt(dot(j, j));
      sum += scale > 0 ? dot(i, j) / scale : 0;
    }
  }
  return N > 1 ? 2 * sum / static_cast<double>(N * (N - 1)) : 1;
}

}  // namespace

void StreamMeasures::add_gates(Measures& to, int64_t unit, const Tensor& gates) const {
  const int64_t N = streams_;
  Tensor figures = gates.like({to.detailed ? 2 * N + 1 : N}, DType::kF64, "gate figures");
  gate_figures(figures, gates);
  to.add(at(unit, 0), figures);
  to.add(at(unit, 2 * N + 1), static_cast<double>(gates.dim(0)));
}

void StreamMeasures::add_branches(Measures& to, int64_t unit, const Tensor& s,
                                  const Param& kernels) const {
  const int64_t rows = std::min(kProbeRows, s.dim(0)), C = s.dim(1);
  const int64_t n = kernels.shape[0], f = kernels.shape[1];  // of the streams and units here
  const Tensor probes = region_.rows_of_all(s.view(0, {rows, C}));
  const int64_t ranks = probes.dim(0) / rows;
  const Tensor made = s.like({ranks, n, f, rows}, accumulator_of(s.dtype()), "branch probe");
  for (int64_t i = 0; i < ranks * n; ++i) {
    Tensor v = made.view(i * f * rows, {f, rows});
    gemm(v, kernels.value.view(i % n * f * C, {f, C}), probes.view(i / n * rows * C, {rows, C}),
         {.transpose_b = true});
  }
  Tensor dots = zeros({streams_, streams_});
  for (const Tensor& piece : region_.come_home(made, kernels.global_shape)) add_dots(dots, piece);
  to.add(at(unit, 2 * streams_ + 2), mean_cosine(dots));
  to.add(at(unit, 2 * streams_ + 3), 1);
}

void StreamMeasures::count_quiet(const Measures& sums, int64_t unit, Tensor& quiet) const {
  const double rows = sums.at(at(unit, 2 * streams_ + 1));
  if (rows == 0) return;
  for (int64_t k = 0; k < streams_; ++k) {
    const bool carries = sums.at(at(unit, k)) / rows >= 0.1 / static_cast<double>(streams_);
    double& steps = quiet.data<double>()[k];
    steps = carries ? 0 : steps + 1;
  }
}

void StreamMeasures::read_gates(std::vector<Reading>& to, const Measures& sums, int64_t unit,
                                const Tensor& quiet) const {
  const int64_t N = streams_;
  const double rows = sums.at(at(unit, 2 * N + 1)), n = static_cast<double>(N);
  if (rows == 0) return;
  const int layer = static_cast<int>(unit);
  const double most = N > 1 ? std::log(n) : 1;
  std::vector<double> load;
  double squares = 0, dead = 0;
  for (int64_t k = 0; k < N; ++k) {
    load.push_back(sums.at(at(unit, k)) / rows);
    squares += load.back() * load.back();
    to.push_back({Metric::kStreamLoad, layer, static_cast<int>(k), load.back()});
    to.push_back(
        {Metric::kStreamShare, layer, static_cast<int>(k), sums.at(at(unit, N + k)) / rows});
    if (!quiet.empty() && quiet.data<double>()[k] >= kDeadAfter) ++dead;
  }
  const double spread = entropy_of(load), sharp = sums.at(at(unit, 2 * N)) / rows;
  to.push_back({Metric::kEffectiveStreams, layer, 0, std::exp(spread)});
  to.push_back({Metric::kGateSharpness, layer, 0, sharp / most});
  to.push_back({Metric::kGateSpecialisation, layer, 0, spread - sharp});
  to.push_back({Metric::kLoadVariation, layer, 0, n * squares - 1});
  to.push_back({Metric::kLoadViolation, layer, 0, n * *std::ranges::max_element(load) - 1});
  if (!quiet.empty()) to.push_back({Metric::kDeadStreams, layer, 0, dead});
  const double probes = sums.at(at(unit, 2 * N + 3));
  if (probes == 0) return;
  to.push_back({Metric::kBranchSimilarity, layer, 0, sums.at(at(unit, 2 * N + 2)) / probes});
}

void StreamMeasures::read_kernels(std::vector<Reading>& to, int64_t unit,
                                  const Param& kernels) const {
  const int layer = static_cast<int>(unit);
  const int64_t N = streams_, n = kernels.shape[0], size = kernels.shape.count() / n;
  Tensor dots = zeros({N, N});
  add_dots(dots, region_.slices_of(kernels.value, kernels.global_shape));
  region_.add_up(dots);
  to.push_back({Metric::kKernelSimilarity, layer, 0, mean_cosine(dots)});
  if (kernels.grad.empty()) return;
  // Of the streams, and last how many ranks do not have the whole sum of their gradients: with
  // ZeRO-1 a rank has that of what it owns.
  Tensor squares = zeros({N + 1});
  const Tensor grad = kernels.grad.on_host();
  const int64_t first = kernels.split_axis == 0 ? kernels.slice_begin : 0;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor part = grad.view(k * size, {size});
    squares.data<double>()[first + k] = cpu::dot(part, part);
  }
  squares.data<double>()[N] = kernels.master.count() < kernels.shape.count() ? 1 : 0;
  region_.add_up(squares);
  if (squares.data<double>()[N] > 0) return;
  const auto [least, most] =
      std::ranges::minmax(squares.span<double>().first(static_cast<size_t>(N)));
  if (most > 0) to.push_back({Metric::kStreamGradientRatio, layer, 0, std::sqrt(least / most)});
}

}  // namespace anabranch
