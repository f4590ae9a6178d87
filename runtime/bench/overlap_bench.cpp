#include <algorithm>
#include <cmath>
#include <list>

#include "core/base/error.h"
#include "parallel/grad_reducer.h"
#include "runtime/bench/comm_bench.h"
#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

// A piece of arithmetic; returns what keeps the compiler from dropping it.
float arithmetic(int64_t rounds) {
  float x = 1, y = 2;
  for (int64_t i = 0; i < rounds; ++i) {
    x = x * 0.999F + y;
    y = y * 0.5F + x * 1e-3F;
  }
  return x + y;
}

void spend(int64_t rounds) {
  const volatile float sink = arithmetic(rounds);
  static_cast<void>(sink);
}

double seconds_per_round() {
  constexpr int64_t kRounds = 20'000'000;
  const std::vector<double> all = seconds_of(3, [] { spend(kRounds); });
  return *std::ranges::min_element(all) / kRounds;
}

// The embedding, then the layers, in forward order.
std::list<Param> gradients(const OverlapOptions& options) {
  const auto elements = [](double mb) { return std::max<int64_t>(std::llround(mb * 1e6 / 4), 1); };
  std::list<Param> params;
  params.emplace_back("embedding", Shape{elements(options.embedding_mb)}, Init::constant(0));
  for (int64_t i = 0; i < options.layers; ++i) {
    params.emplace_back(join("layer", i), Shape{elements(options.layer_mb)}, Init::constant(0));
  }
  return params;
}

}  // namespace

double OverlapBench::hidden() const {
  if (communication_seconds <= 0) return 1;
  return std::max(0.0, 1 - waited_seconds / communication_seconds);
}

OverlapBench bench_overlap(Group& world, const OverlapOptions& options) {
  std::list<Param> params = gradients(options);
  std::vector<Param*> pointers;
  for (Param& w : params) pointers.push_back(&w);
  const Mesh mesh(world, mesh_shape(world.size(), 1, 1, 1));
  FlatStore store(pointers,
                  {static_cast<int64_t>(options.bucket_mb * (1 << 20)), world.size(), world.size()},
                  std::make_shared<Pool>());
  GradReducer reducer(store, mesh, options.bf16 ? DType::kBF16 : DType::kF32);
  const auto rounds = static_cast<int64_t>(
      options.backward_ms * 1e-3 / static_cast<double>(options.layers) / seconds_per_round());
  std::vector<double> steps, communication, waited;
  for (int64_t step = 0; step <= options.steps; ++step) {
    world.barrier();
    const Stopwatch watch;
    reducer.arm();
    for (auto w = pointers.rbegin(); w != pointers.rend(); ++w) {
      if (*w != pointers.front()) spend(rounds);
      (*w)->fresh = false;
      reducer.ready(**w);
    }
    reducer.finish();
    if (step == 0) continue;  // it touches fresh memory
    steps.push_back(watch.seconds());
    communication.push_back(reducer.times().seconds);
    waited.push_back(reducer.times().waited);
  }
  return {median(steps), median(communication), median(waited)};
}

}  // namespace anabranch
