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

// This rank's part of a tensor that has a row of `columns` for each matrix of `w`.
Part matrices_of(const Param& w, int64_t columns) {
  const Part part = w.part();
  const int64_t whole = part.whole[part.axis];
  return {{w.matrices * whole / part.extent, columns},
          0,
          part.begin * w.matrices / part.extent,
          w.matrices};
}

}  // namespace

std::vector<Param*> params_of(Model& model) {
  std::vector<Param*> params;
  model.visit([&](Param& w) { params.push_back(&w); });
  return params;
}

std::vector<StateItem> buffers_of(Model& model, int ranks) {
  std::vector<StateItem> items;
  model.visit_buffers(
      [&](Buffer& b) { items.push_back(StateItem::whole(b.name, b.value, ranks)); });
  return items;
}

std::vector<StateItem> weights_of(Model& model) {
  std::vector<StateItem> items;
  model.visit([&](Param& w) { items.push_back({w.name, w.part(), w.master}); });
  const std::vector<StateItem> buffers = buffers_of(model);
  items.insert(items.end(), buffers.begin(), buffers.end());
  return items;
}

TrainingState::TrainingState(Model& model, const Config& config, const FlatStore::Options& layout,
                             const std::shared_ptr<Pool>& pool)
    : model_(model),
      layout_(layout),
      store_(owned(params_of(model), config.optim.matrix), layout, pool),
      optimizer_(store_, config),
      guard_(config.train.outlier_sigma, config.train.outlier_window) {
  const auto seed = static_cast<uint64_t>(config.run.seed);
  model.visit([&](Param& w) { initialise(w, seed); });
}

Holders TrainingState::holders_of(const Param& w) const {
  if (w.reduce == ReduceGroup::kAll) return {0, 1, layout_.all_ranks};
  const int stride = layout_.all_ranks / layout_.data_ranks;  // model groups are consecutive ranks
  return {layout_.all_rank - layout_.data_rank * stride, stride, layout_.data_ranks};
}

std::vector<StateItem> TrainingState::items() const {
  std::vector<StateItem> items;
  const auto add = [&](const char* prefix, const FlatStore::Entry& entry, const Tensor& value) {
    const Param& w = *entry.param;
    items.push_back(
        {prefix + w.name, w.part(), value, entry.own.begin, holders_of(w), layout_.zero});
  };
  for (const FlatStore::Entry& entry : store_.entries()) add("", entry, entry.param->master);
  for (const FlatStore::Entry& entry : store_.entries()) {
    const bool matrix = entry.param->owner == Owner::kMatrix;
    add(matrix ? kMomentum : kFirstMoment, entry, store_.m(entry));
    const Tensor v = store_.v(entry), scales = optimizer_.scales(*entry.param);
    if (!v.empty()) add(kSecondMoment, entry, v);
    if (scales.empty()) continue;
    items.push_back({kScales + entry.param->name, matrices_of(*entry.param, scales.dim(1)), scales,
                     0, holders_of(*entry.param), layout_.zero});
  }
  const std::vector<StateItem> buffers = buffers_of(model_, layout_.all_ranks);
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
