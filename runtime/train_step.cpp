#include "runtime/train_step.h"

#include <algorithm>

#include "core/tensor/element.h"
#include "runtime/models/registry.h"

namespace anabranch {

TrainStep::TrainStep(const Config& config, const BatchPlan& plan, int64_t vocabulary, Group& world,
                     RankContext& context)
    : config_(config),
      plan_(plan),
      context_(context),
      model_(make_model(config, vocabulary)),
      mesh_(world, mesh_shape(world.size(), 1, 1)),
      state_(
          *model_, config,
          {static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20)), world.size(), world.size()},
          context.pool),
      reducer_(state_.store(), mesh_,
               config.train.grad_wire == GradWire::kBf16 ? DType::kBF16 : DType::kF32),
      measures_(model_->measure_places(plan.sequences), model_->detail_places()) {}

double TrainStep::accumulate(const std::function<MicroBatch()>& next,
                             const std::function<void()>& at_peak) {
  // Every target of a training batch counts, so batch_tokens is their number over all ranks.
  const double scale = 1.0 / static_cast<double>(config_.train.batch_tokens);
  const double last = static_cast<double>(std::max<int64_t>(plan_.steps - 1, 1));
  const StepKey key{static_cast<uint64_t>(config_.run.seed), state_.step, &measures_,
                    std::min(static_cast<double>(state_.step) / last, 1.0)};
  std::ranges::fill(measures_.sums(), 0.0);
  state_.store().forget_grads();
  double loss = 0;
  for (int64_t j = 0; j < plan_.accumulation; ++j) {
    const MicroBatch batch = next();
    Tape tape(Tape::Mode::kRecord, context_.trace);
    if (j + 1 == plan_.accumulation) {
      reducer_.arm();
      tape.on_grad_ready = [this](Param& w) { reducer_.ready(w); };
    }
    const Var y = model_->loss(tape, batch, key, scale);
    loss += element(y.value());
    if (at_peak) at_peak();
    tape.backward(y);
  }
  return loss;
}

void TrainStep::reduce() {
  reducer_.finish();
  const std::span<double> sums = measures_.sums();
  if (sums.empty()) return;
  Tensor all = Tensor::of<double>({std::ssize(sums)}, {sums.begin(), sums.end()});
  mesh_.all().all_reduce_sum(all).wait();
  std::ranges::copy(all.span<double>(), sums.begin());
}

void TrainStep::update(double grad_norm) {
  const Span span(context_.trace, Lane::kCompute, "optimizer");
  state_.optimizer().step(state_.step, grad_norm);
  model_->end_step(measures_);
}

}  // namespace anabranch
