// A model in training and one update of it, whatever the batches come from.
#pragma once

#include <functional>
#include <memory>

#include "parallel/grad_reducer.h"
#include "parallel/mesh.h"
#include "parallel/rank_context.h"
#include "runtime/config/validate.h"
#include "runtime/models/model.h"
#include "runtime/training_state.h"

namespace anabranch {

// Accumulate, reduce, update: each is called once a step, by all ranks, in this order.
class TrainStep {
 public:
  // The configured model at its first values, laid out over all ranks. Keeps references.
  //
  //   vocabulary  entries of the data set's tokenizer
  TrainStep(const Config& config, const BatchPlan& plan, int64_t vocabulary, Group& world,
            RankContext& context);

  // Forward and backward over the micro-batches of step state().step, which the caller counts and
  // which dropout is keyed by; the reduction of gradients starts during the last backward. Returns
  // this rank's part of the loss in nats per token of the step.
  //
  //   next     gives the next micro-batch
  //   at_peak  called after each forward, when activations are at their most; may be empty
  double accumulate(const std::function<MicroBatch()>& next,
                    const std::function<void()>& at_peak = {});

  // Waits until all gradients, and the model's figures, are summed over the ranks.
  void reduce();

  // The model's figures of this step. What they cost is only spent when `detailed` says so, before
  // accumulate().
  [[nodiscard]] Measures& measures() { return measures_; }

  // The norm of the whole gradient, before clipping.
  [[nodiscard]] double grad_norm() const { return state_.optimizer().grad_norm(); }

  // The update of step state().step, of a gradient of norm `grad_norm`.
  void update(double grad_norm);

  [[nodiscard]] Model& model() { return *model_; }

  [[nodiscard]] TrainingState& state() { return state_; }

  // The part of the last reduction that was hidden behind backward, 0..1.
  [[nodiscard]] double hidden() const { return reducer_.times().hidden(); }

 private:
  const Config& config_;
  BatchPlan plan_;
  RankContext& context_;
  std::unique_ptr<Model> model_;
  Mesh mesh_;
  TrainingState state_;
  GradReducer reducer_;
  Measures measures_;
};

}  // namespace anabranch
