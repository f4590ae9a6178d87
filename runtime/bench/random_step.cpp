#include "runtime/bench/random_step.h"

#include "runtime/bench/timing.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

FlatStore::Options store_options(const Config& config, const Group& world) {
  return {static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20)), world.size(), world.size()};
}

MicroBatch random_batch(const Config& config, int64_t vocabulary, const RankContext& context) {
  const Shape shape{config.train.micro_batch, config.model.context};
  const auto seed = 2 * static_cast<uint64_t>(context.rank);
  return {random_ids(shape, vocabulary, seed, context.pool),
          random_ids(shape, vocabulary, seed + 1, context.pool), 0};
}

}  // namespace

RandomStep::RandomStep(const Config& config, int64_t vocabulary, Group& world, RankContext& context)
    : config_(config),
      world_(world),
      plan_(plan_batch(config, world.size())),
      model_(make_model(config, vocabulary)),
      mesh_(world, mesh_shape(world.size(), 1, 1)),
      state_(*model_, config, store_options(config, world), context.pool),
      reducer_(state_.store(), mesh_,
               config.train.grad_wire == GradWire::kBf16 ? DType::kBF16 : DType::kF32),
      batch_(random_batch(config, vocabulary, context)) {}

RandomStep::Times RandomStep::run() {
  Times times;
  world_.barrier();
  const Stopwatch step;
  const double scale = 1.0 / static_cast<double>(batch_.inputs.count());
  state_.store().forget_grads();
  for (int64_t j = 0; j < plan_.accumulation; ++j) {
    Tape tape;
    if (j + 1 == plan_.accumulation) {
      reducer_.arm();
      tape.on_grad_ready = [&](Param& w) { reducer_.ready(w); };
    }
    tape.backward(model_->loss(tape, batch_, StepKey{1, steps_}, scale));
  }
  const Stopwatch wait;
  reducer_.finish();
  times.waited = wait.seconds();
  state_.optimizer().step(config_.optim.lr, state_.optimizer().grad_norm());
  ++steps_;
  times.seconds = step.seconds();
  times.hidden = reducer_.times().hidden();
  return times;
}

}  // namespace anabranch
