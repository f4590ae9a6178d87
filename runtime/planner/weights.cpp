#include "runtime/planner/weights.h"

#include <algorithm>

#include "core/ops/polar.h"
#include "runtime/bench/matrix_bench.h"
#include "runtime/planned_part.h"

namespace anabranch {
namespace {

size_t polar_iterations(const OptimConfig& optim) {
  const PolarForm form = optim.matrix == MatrixOptimizer::kMuon
                             ? PolarForm::polar_express()
                             : PolarForm::simple_quintic(static_cast<int>(optim.polar_steps));
  return form.iterations.size();
}

// Operations of a matrix optimizer's update of a parameter.
double update_flops(const Param& w, const OptimConfig& optim) {
  const int64_t cols = w.shape[-1], rows = w.shape.count() / (cols * w.matrices);
  const bool twice = optim.matrix == MatrixOptimizer::kAurora && rows != cols;
  const double rounds = twice ? static_cast<double>(optim.aurora_rounds) : 1;
  return static_cast<double>(w.matrices) * rounds *
         polar_flops(rows, cols, polar_iterations(optim));
}

}  // namespace

WeightBytes weight_bytes(const Config& config, int64_t vocabulary, const Layout& layout) {
  PlannedPart part(laid_out(config, layout), vocabulary, layout.mesh);
  WeightBytes bytes;
  bytes.need = part.need();
  const auto reduced = [&](ReduceGroup group) -> ReducedElements& {
    return group == ReduceGroup::kAll ? bytes.all : bytes.data;
  };
  for (const Bucket& bucket : part.buckets()) {
    const DType wide = accumulator_of(bucket.compute);
    const auto n = static_cast<double>(bucket.count), own = static_cast<double>(bucket.own.count);
    const auto a = static_cast<double>(size_of(wide));
    const double rounded =
        bucket.compute != wide ? static_cast<double>(size_of(bucket.compute)) : 0;
    const int moments = bucket.owner == Owner::kMatrix ? 1 : 2;
    bytes.here += n;
    reduced(bucket.reduce).count += n;
    // The gradient, moments and master read, the latter two and the value written; and the norm's.
    bytes.update_bytes += own * (a * (3 + 2 * moments) + rounded) + n * a;
  }
  const bool matrices = config.optim.matrix != MatrixOptimizer::kAdamw;
  double dearest = 0;  // update of one parameter: a rank owns whole ones
  bool tables = true;  // backward completes the first parameters last
  part.model().visit([&](const Param& w) {
    const int owners = w.reduce == ReduceGroup::kAll ? layout.ranks() : layout.mesh.data;
    const double share = layout.zero ? 1.0 / owners : 1;
    if (matrices && w.owner == Owner::kMatrix) {
      const double flops = update_flops(w, config.optim);
      bytes.polar_flops += share * flops;
      dearest = std::max(dearest, flops);
    }
    tables = tables && w.role == Role::kEmbedding;
    if (tables) reduced(w.reduce).last += static_cast<double>(w.shape.count());
  });
  bytes.polar_flops = std::max(bytes.polar_flops, dearest);
  return bytes;
}

}  // namespace anabranch
