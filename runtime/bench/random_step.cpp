#include "runtime/bench/random_step.h"

#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

MicroBatch random_batch(const Config& config, int64_t vocabulary, const RankContext& context) {
  const Shape shape{config.train.micro_batch, config.model.context};
  const auto seed = 2 * static_cast<uint64_t>(context.rank);
  return {random_ids(shape, vocabulary, seed, context.host_pool()),
          random_ids(shape, vocabulary, seed + 1, context.host_pool()), 0};
}

}  // namespace

RandomStep::RandomStep(const Config& config, int64_t vocabulary, Group& world, RankContext& context)
    : world_(world),
      context_(context),
      plan_(plan_batch(config, world.size())),
      step_(config, plan_, vocabulary, world, context),
      batch_(random_batch(config, vocabulary, context)) {}

RandomStep::Times RandomStep::run() {
  Times times;
  world_.barrier();
  const int64_t waits = context_.pool->stream().waits();
  const Stopwatch step;
  step_.accumulate([&] { return batch_; });
  step_.reduce();
  const Stopwatch update;
  step_.update(step_.grad_norm());
  ++step_.state().step;
  times.update = update.seconds();
  times.seconds = step.seconds();
  times.waited = step_.reduction().waited;
  times.hidden = step_.reduction().hidden();
  times.gpu_waits = context_.pool->stream().waits() - waits;
  return times;
}

}  // namespace anabranch
