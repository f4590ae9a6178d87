#include "runtime/bench/step_bench.h"

#include "monitoring/process.h"
#include "runtime/bench/product_run.h"
#include "runtime/bench/random_step.h"
#include "runtime/bench/timing.h"
#include "runtime/models/registry.h"

namespace anabranch {

StepBench bench_step(const Config& config, int64_t vocabulary, int64_t warmup, int64_t steps,
                     Group& world, RankContext& context) {
  RandomStep step(config, vocabulary, world, context);
  StepBench result;
  std::vector<double> waits, hidden, updates;
  for (int64_t s = 0; s < warmup + steps; ++s) {
    const RandomStep::Times times = step.run();
    if (s < warmup) continue;
    result.seconds.push_back(times.seconds);
    updates.push_back(times.update);
    waits.push_back(times.waited);
    hidden.push_back(times.hidden);
    result.gpu_waits = times.gpu_waits;
  }
  result.update_seconds = median(updates);
  result.comm_wait_seconds = median(waits);
  result.hidden = median(hidden);
  result.parameters = step.state().store().parameter_count();
  result.pool_peak_bytes = context.pool->usage().peak;
  result.resident_peak_bytes = resident_peak_bytes();
  result.tokens_per_step = config.train.batch_tokens;
  result.flops_per_step =
      step.model().cost().flops_per_token() * static_cast<double>(config.train.batch_tokens);
  if (context.device.is_cuda()) return result;
  const auto accumulation = static_cast<double>(step.plan().accumulation);
  const DType type = compute_type(config.train.precision);
  const ProductSeconds alone =
      time_products(step.model().products(config.train.micro_batch), type, context.pool);
  result.linear_product_seconds = accumulation * alone.linear;
  result.attention_product_seconds = accumulation * alone.attention;
  result.attention_seconds = accumulation * alone.whole_attention;
  result.matrices = bench_matrices(owned_matrices(step.state().store(), config.optim), config.optim,
                                   type, context.pool);
  return result;
}

}  // namespace anabranch
