// Everything of a run that a checkpoint holds: parameters, moments, counters, data position.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/flat_store.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state.h"
#include "runtime/config/config.h"
#include "runtime/models/model.h"
#include "runtime/optimizer.h"
#include "runtime/step_guard.h"

namespace anabranch {

class TrainingState {
 public:
  // Lays out the parameters of `model` and fills them as their Init says. Keeps references.
  TrainingState(Model& model, const Config& config, const FlatStore::Options& layout,
                const std::shared_ptr<Pool>& pool);

  // What is saved, as views of what is trained: this rank's master weights and moments, and the
  // buffers.
  [[nodiscard]] std::vector<StateItem> items() const;

  // The counters as a manifest's header.
  [[nodiscard]] Manifest header(const std::map<std::string, std::string>& facts) const;
  // Takes the counters of a manifest whose tensors have been loaded into items().
  void restore(const Manifest& manifest);

  FlatStore& store() { return store_; }

  Optimizer& optimizer() { return optimizer_; }

  [[nodiscard]] const Optimizer& optimizer() const { return optimizer_; }

  StepGuard& guard() { return guard_; }

  int64_t step = 0;         // steps done
  int64_t next_sample = 0;  // of the data order
  int64_t tokens = 0;       // trained on

 private:
  [[nodiscard]] Holders holders_of(const Param& w) const;

  Model& model_;
  FlatStore::Options layout_;
  FlatStore store_;
  Optimizer optimizer_;
  StepGuard guard_;
};

// A model's buffers, as items that ranks 0 to `ranks` - 1 all have.
std::vector<StateItem> buffers_of(Model& model, int ranks = 1);

// The parameters of a model, in forward order.
std::vector<Param*> params_of(Model& model);

// The items of a model alone, for reading a checkpoint without training: its master weights and
// buffers.
std::vector<StateItem> weights_of(Model& model);

}  // namespace anabranch
