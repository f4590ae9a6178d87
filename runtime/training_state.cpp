#include "runtime/training_state.h"

#include "core/base/error.h"
#include "core/nn/init.h"

namespace anabranch {
namespace {

const char* const kFirstMoment = "adamw.m/";
const char* const kSecondMoment = "adamw.v/";
const char* const kMomentum = "matrix.m/";
const char* const kScales = "muon.s/";

// Without a matrix optimizer every parameter belongs to AdamW.
std::vector<Param*> owned(std::vector<Param*> params, MatrixOptimizer matrix) {
  if (matrix != MatrixOptimizer::kAdamw) return params;
  for (Param* w : params) w->owner = Owner::kAdamw;
  return params;
}

const std::vector<double>& counter(const Manifest& manifest, const std::string& name) {
  const auto found = manifest.counters.find(name);
  if (found == manifest.counters.end() || found->second.empty()) {
    throw data_error("the checkpoint of step ", manifest.step, " lacks the counter '", name, "'");
  }
  return found->second;
}

}  // namespace

std::vector<Param*> params_of(Model& model) {
  std::vector<Param*> params;
  model.visit([&](Param& w) { params.push_back(&w); });
  return params;
}

std::vector<StateItem> buffers_of(Model& model) {
  std::vector<StateItem> items;
  model.visit_buffers([&](Buffer& b) { items.push_back({b.name, b.value.shape(), 0, b.value}); });
  return items;
}

std::vector<StateItem> weights_of(Model& model) {
  std::vector<StateItem> items;
  model.visit([&](Param& w) {
    items.push_back({w.name, w.global_shape, w.slice_begin, w.master});
  });
  const std::vector<StateItem> buffers = buffers_of(model);
  items.insert(items.end(), buffers.begin(), buffers.end());
  return items;
}

TrainingState::TrainingState(Model& model, const Config& config, const FlatStore::Options& layout,
                             const std::shared_ptr<Pool>& pool)
    : model_(model),
      store_(owned(params_of(model), config.optim.matrix), layout, pool),
      optimizer_(store_, config),
      guard_(config.train.outlier_sigma, config.train.outlier_window) {
  const auto seed = static_cast<uint64_t>(config.run.seed);
  model.visit([&](Param& w) { initialise(w, seed); });
}

std::vector<StateItem> TrainingState::items() const {
  std::vector<StateItem> items;
  const auto add = [&](const char* prefix, const Param& w, const Tensor& value) {
    items.push_back({prefix + w.name, w.global_shape, w.slice_begin, value});
  };
  for (const FlatStore::Entry& entry : store_.entries()) add("", *entry.param, entry.param->master);
  for (const FlatStore::Entry& entry : store_.entries()) {
    const bool matrix = entry.param->owner == Owner::kMatrix;
    add(matrix ? kMomentum : kFirstMoment, *entry.param, store_.m(entry));
    const Tensor v = store_.v(entry), scales = optimizer_.scales(*entry.param);
    if (!v.empty()) add(kSecondMoment, *entry.param, v);
    if (!scales.empty()) {
      items.push_back({kScales + entry.param->name, scales.shape(), 0, scales});
    }
  }
  const std::vector<StateItem> buffers = buffers_of(model_);
  items.insert(items.end(), buffers.begin(), buffers.end());
  return items;
}

Manifest TrainingState::header(const std::map<std::string, std::string>& facts) const {
  Manifest manifest;
  manifest.step = step;
  manifest.next_sample = next_sample;
  manifest.counters["tokens"] = {static_cast<double>(tokens)};
  manifest.counters["updates"] = optimizer_.counts();
  manifest.counters["guard"] = guard_.state();
  manifest.facts = facts;
  return manifest;
}

void TrainingState::restore(const Manifest& manifest) {
  step = manifest.step;
  next_sample = manifest.next_sample;
  tokens = static_cast<int64_t>(counter(manifest, "tokens").front());
  optimizer_.set_counts(counter(manifest, "updates"));
  guard_.restore(counter(manifest, "guard"));
  store_.refresh_values();
}

}  // namespace anabranch
