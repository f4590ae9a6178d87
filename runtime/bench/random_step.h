// A training step on random tokens, which needs no data set: what the benches time. A sequence is
// one document, whatever data.document_mask says.
#pragma once

#include <memory>

#include "parallel/grad_reducer.h"
#include "parallel/mesh.h"
#include "parallel/rank_context.h"
#include "runtime/config/validate.h"
#include "runtime/models/model.h"
#include "runtime/training_state.h"

namespace anabranch {

class RandomStep {
 public:
  // The configured model and batch over all ranks. Keeps references.
  //
  //   vocabulary  entries, since no data set is read
  RandomStep(const Config& config, int64_t vocabulary, Group& world, RankContext& context);

  struct Times {
    double seconds = 0;  // the whole step, from a barrier on
    double waited = 0;   // for the reduction after backward
    double hidden = 1;   // part of the reduction behind backward
  };

  // Forward, backward, reduction, clip, AdamW. Collective.
  Times run();

  [[nodiscard]] TrainingState& state() { return state_; }

  [[nodiscard]] const Model& model() const { return *model_; }

  [[nodiscard]] const BatchPlan& plan() const { return plan_; }

 private:
  const Config& config_;
  Group& world_;
  BatchPlan plan_;
  std::unique_ptr<Model> model_;
  Mesh mesh_;
  TrainingState state_;
  GradReducer reducer_;
  MicroBatch batch_;
  int64_t steps_ = 0;
};

}  // namespace anabranch
