#include "runtime/train_step.h"

#include <algorithm>

#include "core/base/range.h"
#include "core/tensor/convert.h"
#include "core/tensor/element.h"
#include "parallel/lanes.h"
#include "runtime/config/validate_deterministic.h"
#include "runtime/config/validate_parallel.h"
#include "runtime/models/registry.h"

namespace anabranch {

MeshShape shape_of(const Config& config, int ranks) {
  const auto model = static_cast<int>(std::max<int64_t>(config.parallel.model.value, 1));
  return mesh_shape(ranks, model, pool_sequences(config.model), config.train.micro_batch);
}

Regions regions_of(const Config& config, const MeshShape& shape, Group& model, Group& pool) {
  Regions regions;
  if (shape.model > 1) regions.model = &model;
  if (shape.pool > 1) regions.pool = &pool;
  const bool slice = stream_layout(config, shape.model) == StreamLayoutChoice::kSlice;
  regions.streams = slice ? StreamLayout::kSlice : StreamLayout::kGather;
  regions.any_layout = is_of_any_layout(config);
  return regions;
}

FlatStore::Options layout_of(const Config& config, const MeshShape& shape, int rank) {
  return {.bucket_bytes = static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20)),
          .all_ranks = shape.data * shape.model,
          .data_ranks = shape.data,
          .all_rank = rank,
          .data_rank = rank / shape.model,
          .zero = config.parallel.zero > 0,
          .lanes = is_of_any_layout(config) ? kLanes : 1};
}

TrainStep::TrainStep(const Config& config, const BatchPlan& plan, int64_t vocabulary, Group& world,
                     RankContext& context)
    : config_(config),
      plan_(plan),
      context_(context),
      mesh_(world, shape_of(config, world.size())),
      model_(make_model(config, vocabulary,
                        regions_of(config, mesh_.shape(), mesh_.model(), mesh_.pool()))),
      state_(*model_, config, layout_of(config, mesh_.shape(), world.rank()), context.pool),
      reducer_(state_.store(), mesh_,
               config.train.grad_wire == GradWire::kBf16 ? DType::kBF16 : DType::kF32),
      measures_(model_->measure_places(plan.sequences), model_->detail_places(),
                static_cast<size_t>(state_.store().lanes())),
      figures_({state_.store().lanes() + std::ssize(state_.store().buckets()) + 1 +
                (context.device.is_cuda() ? static_cast<int64_t>(measures_.places()) : 0)},
               DType::kF64, context.pool, "figures"),
      losses_(figures_.view(0, {state_.store().lanes(), 1})),
      squares_(figures_.view(losses_.count(), {std::ssize(state_.store().buckets())})),
      rejected_(figures_.view(losses_.count() + squares_.count(), {1})),
      measured_(figures_.view(losses_.count() + squares_.count() + 1,
                              {figures_.count() - losses_.count() - squares_.count() - 1})) {}

double TrainStep::grad_norm() const {
  return state_.optimizer().grad_norm(mesh_,
                                      seen_.view(losses_.count(), squares_.shape()).span<double>());
}

void TrainStep::accumulate(const std::function<MicroBatch()>& next,
                           const std::function<void()>& at_peak) {
  // Every target of a training batch counts, so batch_tokens is their number over all ranks.
  const double scale = 1.0 / static_cast<double>(config_.train.batch_tokens);
  const double last = static_cast<double>(std::max<int64_t>(plan_.steps - 1, 1));
  const StepKey key{static_cast<uint64_t>(config_.run.seed), state_.step, &measures_,
                    std::min(static_cast<double>(state_.step) / last, 1.0)};
  std::ranges::fill(measures_.sums(), 0.0);
  state_.store().forget_grads();
  losses_.fill_zero();
  measures_.gather_in(measured_);
  for (int64_t j = 0; j < plan_.accumulation; ++j) {
    const Range range("micro-batch", j);
    context_.heartbeat->at("data");
    const MicroBatch batch = next();
    context_.heartbeat->at("forward");
    const int lane = losses_.count() > 1 ? lane_of(j, mesh_.all()) : 0;
    Tape tape(Tape::Mode::kRecord, context_.trace);
    tape.set_lane(lane);
    measures_.set_lane(lane);
    if (j + 1 == plan_.accumulation) {
      reducer_.arm();
      tape.on_grad_ready = [this](Param& w) { reducer_.ready(w); };
    }
    const Var y = model_->loss(tape, batch, key, scale);
    Tensor loss = losses_.view(lane, {1});
    add_converted(loss, y.value());
    if (at_peak) at_peak();
    context_.heartbeat->at("backward");
    const Range backward("backward");
    tape.backward(y);
  }
}

double TrainStep::loss() const {
  return losses_.count() == 1 || mesh_.all().rank() == 0 ? element(seen_) : 0;
}

void TrainStep::restore(const Manifest& manifest) {
  state_.restore(manifest);
  for (auto b = std::ssize(state_.store().buckets()); b-- > 0;) {
    reducer_.gather(static_cast<int>(b));
  }
}

void TrainStep::reduce() {
  context_.heartbeat->at("reduce");
  const Range range("reduce");
  reducer_.finish();
  const int64_t lanes = losses_.count();
  if (lanes > 1) sum_lanes(losses_, mesh_.all());
  state_.optimizer().squares(squares_);
  state_.optimizer().tell_rejected(rejected_);
  seen_ = figures_.on_host();
  mesh_.all().check();  // after an abort streams run on, over what nobody sent
  int64_t at = lanes + squares_.count();
  state_.optimizer().hear_rejected(element(seen_, at++));
  measures_.collect(seen_.view(at, measured_.shape()).span<double>());
  const std::span<double> sums = measures_.sums();
  if (sums.empty()) return;
  Tensor all = Tensor::of<double>({lanes, std::ssize(sums) / lanes}, {sums.begin(), sums.end()});
  sum_lanes(all, mesh_.all());
  std::ranges::copy(all.span<double>(), sums.begin());
}

void TrainStep::update(double grad_norm) {
  context_.heartbeat->at("update");
  const Range range("optimizer");
  const Span span(context_.trace, Lane::kCompute, "optimizer");
  state_.optimizer().step(state_.step, grad_norm, [this](int b) { reducer_.gather(b); });
  model_->end_step(measures_);
}

}  // namespace anabranch
