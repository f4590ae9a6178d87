// A model in training and one update of it, whatever the batches come from.
#pragma once

#include <functional>
#include <memory>

#include "parallel/grad_reducer.h"
#include "parallel/mesh.h"
#include "parallel/rank_context.h"
#include "parallel/regions.h"
#include "runtime/config/validate.h"
#include "runtime/models/model.h"
#include "runtime/training_state.h"

namespace anabranch {

// How a run's configuration lays its ranks out. Throws Error (config) with the legal values.
[[nodiscard]] MeshShape shape_of(const Config& config, int ranks);
// The groups of its model's regions; those of one rank are left out.
[[nodiscard]] Regions regions_of(const Config& config, const MeshShape& shape, Group& model,
                                 Group& pool);
// How a rank lays out its parameters and optimizer state.
[[nodiscard]] FlatStore::Options layout_of(const Config& config, const MeshShape& shape,
                                           int rank = 0);

// Accumulate, reduce, update: each is called once a step, by all ranks, in this order.
class TrainStep {
 public:
  // The configured model at its first values, laid out over all ranks. Keeps references.
  //
  //   vocabulary  entries of the data set's tokenizer
  TrainStep(const Config& config, const BatchPlan& plan, int64_t vocabulary, Group& world,
            RankContext& context);

  // Forward and backward over the micro-batches of step state().step, which the caller counts and
  // which dropout is keyed by; the reduction of gradients starts during the last backward.
  //
  //   next     gives the next micro-batch
  //   at_peak  called after each forward, when activations are at their most; may be empty
  void accumulate(const std::function<MicroBatch()>& next,
                  const std::function<void()>& at_peak = {});

  // Takes the counters of a manifest whose tensors have been loaded into state().items(), and sends
  // every rank the values of all its parameters. Collective.
  void restore(const Manifest& manifest);

  // Waits until all gradients, and the model's figures, are summed over the ranks. On a GPU, where
  // this is all that the host waits for in a step.
  void reduce();

  // After that, this rank's part of the loss in nats per token of the step.
  [[nodiscard]] double loss() const;

  // The model's figures of this step. What they cost is only spent when `detailed` says so, before
  // accumulate().
  [[nodiscard]] Measures& measures() { return measures_; }

  // The norm of the whole gradient, before clipping. Collective.
  [[nodiscard]] double grad_norm() const;

  // The update of step state().step, of a gradient of norm `grad_norm`. With parallel.zero each
  // rank updates what it owns, and values travel on after it: whatever reads a parameter waits for
  // it, so the next forward begins when its first ones are here.
  void update(double grad_norm);

  [[nodiscard]] const Mesh& mesh() const { return mesh_; }

  [[nodiscard]] Model& model() { return *model_; }

  [[nodiscard]] TrainingState& state() { return state_; }

  // Of the last reduction of gradients.
  [[nodiscard]] ReduceTimes reduction() const { return reducer_.times(); }

 private:
  const Config& config_;
  BatchPlan plan_;
  RankContext& context_;
  Mesh mesh_;
  std::unique_ptr<Model> model_;
  TrainingState state_;
  GradReducer reducer_;
  Measures measures_;
  // Float64, beside the model: losses [lanes, 1] of this rank, squares of norms [buckets], and of a
  // GPU rejected matrices [1] and what is measured [places]; and all of them in the host's memory,
  // once they are summed.
  Tensor figures_, losses_, squares_, rejected_, measured_, seen_;
};

}  // namespace anabranch
