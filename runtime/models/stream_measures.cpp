#include "runtime/models/stream_measures.h"

#include <algorithm>
#include <cmath>

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

// The mean over all pairs of the cosine of slices of `all` [N, ...].
double mean_cosine(const Tensor& all) {
  const int64_t N = all.dim(0), size = all.count() / N;
  std::vector<Tensor> parts;
  std::vector<double> norms;
  for (int64_t k = 0; k < N; ++k) {
    parts.push_back(all.view(k * size, {size}));
    norms.push_back(std::sqrt(cpu::dot(parts.back(), parts.back())));
  }
  double sum = 0;
  int64_t pairs = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = i + 1; j < parts.size(); ++j, ++pairs) {
      const double scale = norms[i] * norms[j];
      sum += scale > 0 ? cpu::dot(parts[i], parts[j]) / scale : 0;
    }
  }
  return pairs > 0 ? sum / static_cast<double>(pairs) : 1;
}

}  // namespace

void StreamMeasures::add_gates(Measures& to, int64_t unit, const Tensor& gates) const {
  const int64_t N = streams_;
  std::vector<double> row(static_cast<size_t>(N)), sums(row), tops(row);
  double entropy = 0;
  dispatch(gates.dtype(), [&]<class T>() {
    const T* g = gates.data<T>();
    for (int64_t i = 0; i < gates.dim(0); ++i, g += N) {
      for (int64_t k = 0; k < N; ++k) {
        row[static_cast<size_t>(k)] = static_cast<double>(static_cast<Accumulator<T>>(g[k]));
        sums[static_cast<size_t>(k)] += row[static_cast<size_t>(k)];
      }
      if (!to.detailed) continue;
      tops[static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin())] += 1;
      entropy += entropy_of(row);
    }
  });
  for (int64_t k = 0; k < N; ++k) {
    to.add(at(unit, k), sums[static_cast<size_t>(k)]);
    to.add(at(unit, N + k), tops[static_cast<size_t>(k)]);
  }
  to.add(at(unit, 2 * N), entropy);
  to.add(at(unit, 2 * N + 1), static_cast<double>(gates.dim(0)));
}

void StreamMeasures::add_branches(Measures& to, int64_t unit, const Tensor& s,
                                  const Tensor& kernels) const {
  const int64_t rows = std::min(kProbeRows, s.dim(0)), F = kernels.dim(1), C = kernels.dim(2);
  const Tensor probe = s.view(0, {rows, C});
  Tensor all = s.like({streams_, rows, F}, accumulator_of(s.dtype()), "branch probe");
  for (int64_t k = 0; k < streams_; ++k) {
    Tensor v = all.view(k * rows * F, {rows, F});
    gemm(v, probe, kernels.view(k * F * C, {F, C}), {.transpose_b = true});
  }
  to.add(at(unit, 2 * streams_ + 2), mean_cosine(all));
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

void StreamMeasures::read_kernels(std::vector<Reading>& to, int64_t unit, const Param& kernels) {
  const int layer = static_cast<int>(unit);
  to.push_back({Metric::kKernelSimilarity, layer, 0, mean_cosine(kernels.value)});
  const int64_t N = kernels.shape[0], size = kernels.shape.count() / N;
  double least = 0, most = 0;
  for (int64_t k = 0; k < N && !kernels.grad.empty(); ++k) {
    const Tensor part = kernels.grad.view(k * size, {size});
    const double norm = std::sqrt(cpu::dot(part, part));
    least = k == 0 ? norm : std::min(least, norm);
    most = std::max(most, norm);
  }
  if (most > 0) to.push_back({Metric::kStreamGradientRatio, layer, 0, least / most});
}

}  // namespace anabranch
