#include "runtime/planner/weights.h"

#include <algorithm>

#include "core/ops/polar.h"
#include "parallel/flat_store.h"
#include "runtime/bench/matrix_bench.h"

namespace anabranch {
namespace {

int64_t padded(int64_t count) {
  constexpr int64_t kLine = FlatStore::kAlign;
  return (count + kLine - 1) / kLine * kLine;
}

size_t polar_iterations(const OptimConfig& optim) {
  const PolarForm form = optim.matrix == MatrixOptimizer::kMuon
                             ? PolarForm::polar_express()
                             : PolarForm::simple_quintic(static_cast<int>(optim.polar_steps));
  return form.iterations.size();
}

// Operations of a matrix optimizer's update of `count` elements of a parameter.
double update_flops(const Param& w, int64_t count, const OptimConfig& optim) {
  const int64_t cols = w.global_shape[-1];
  const int64_t rows = w.global_shape.count() / (cols * w.matrices);
  const bool twice = optim.matrix == MatrixOptimizer::kAurora && rows != cols;
  const double rounds = twice ? static_cast<double>(optim.aurora_rounds) : 1;
  const double matrices = static_cast<double>(count) / static_cast<double>(rows * cols);
  return matrices * rounds * polar_flops(rows, cols, polar_iterations(optim));
}

}  // namespace

WeightBytes weight_bytes(Model& model, const Config& config, const Layout& layout) {
  WeightBytes bytes;
  const bool matrices = config.optim.matrix != MatrixOptimizer::kAdamw;
  bool tables = true;  // backward completes the first parameters last
  model.visit([&](Param& w) {
    const SplitRule rule = split_rule(w, config, layout);
    const int64_t here = part_count(w, rule, layout);
    const auto n = static_cast<double>(here > 0 ? padded(here) : 0);
    const DType wide = accumulator_of(w.compute);
    const auto a = static_cast<double>(size_of(wide)), b = static_cast<double>(size_of(w.compute));
    const int over = rule.split() ? layout.mesh.data : layout.ranks();
    const double share = layout.zero ? 1.0 / over : 1;
    const bool whole = matrices && w.owner == Owner::kMatrix;
    const int moments = whole ? 1 : 2;
    bytes.parameters += static_cast<double>(w.global_shape.count());
    bytes.here += n;
    bytes.values += n * b;
    if (w.compute != wide) bytes.masters += n * a * share;
    bytes.gradients += n * a;
    bytes.moments += moments * n * a * share;
    bytes.save += (1 + moments) * n * a / over;
    if (whole) bytes.polar_flops += share * update_flops(w, here, config.optim);
    // The gradient, moments and master read, the latter two and the value written; and the norm's.
    const double rounded = w.compute != wide ? b : 0;
    bytes.update_bytes += n * share * (a * (3 + 2 * moments) + rounded) + n * a;
    ReducedElements& reduced = rule.split() ? bytes.data : bytes.all;
    reduced.count += n;
    tables = tables && w.role == Role::kEmbedding;
    if (tables) reduced.last += n;
  });
  return bytes;
}

}  // namespace anabranch
