// A training step on random tokens, which needs no data set: what the benches time. A sequence is
// one document, whatever data.document_mask says.
#pragma once

#include "runtime/train_step.h"

namespace anabranch {

class RandomStep {
 public:
  // The configured model and batch over all ranks. Keeps references.
  //
  //   vocabulary  entries, since no data set is read
  RandomStep(const Config& config, int64_t vocabulary, Group& world, RankContext& context);

  struct Times {
    double seconds = 0;     // the whole step, from a barrier on
    double update = 0;      // the optimizer; the norm is the reduction's
    double waited = 0;      // for the reduction after backward
    double hidden = 1;      // part of the reduction behind backward
    int64_t gpu_waits = 0;  // times that the host waited for its GPU
  };

  // Forward, backward, reduction, clip, optimizer. Collective.
  Times run();

  [[nodiscard]] TrainingState& state() { return step_.state(); }

  [[nodiscard]] const Model& model() { return step_.model(); }

  [[nodiscard]] const BatchPlan& plan() const { return plan_; }

 private:
  Group& world_;
  const RankContext& context_;
  BatchPlan plan_;
  TrainStep step_;
  MicroBatch batch_;
};

}  // namespace anabranch
