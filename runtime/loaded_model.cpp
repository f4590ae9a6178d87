#include "runtime/loaded_model.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/nn/init.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/memory_need.h"
#include "runtime/models/registry.h"
#include "runtime/training_state.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

bool is_checkpoint(const fs::path& path) { return fs::exists(path / "manifest.json"); }

// The newest checkpoint of a run whose every byte is right.
fs::path newest_good(const fs::path& run) {
  const CheckpointDirectory directory(run / "checkpoints");
  std::string problem = "there is none";
  for (const int64_t step : directory.steps()) {
    try {
      verify_checkpoint(directory.at(step));
      return directory.at(step);
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  throw data_error("no good checkpoint in ", run.string(), ": ", problem);
}

fs::path checkpoint_of(const fs::path& path, std::optional<int64_t> step) {
  if (is_checkpoint(path)) return path;
  if (!fs::is_directory(path)) {
    throw data_error(path.string(), " is neither a run directory nor a checkpoint");
  }
  return step ? CheckpointDirectory(path / "checkpoints").at(*step) : newest_good(path);
}

// The entries of the master weights, without the optimizer's moments.
Manifest weights_only(const Manifest& manifest, const std::vector<StateItem>& items) {
  Manifest weights = manifest;
  std::erase_if(weights.entries, [&](const CheckpointEntry& e) {
    return std::ranges::none_of(items, [&](const StateItem& i) { return i.name == e.name; });
  });
  return weights;
}

}  // namespace

fs::path run_directory_of(const fs::path& path) {
  if (!is_checkpoint(path)) return path;
  const fs::path whole = fs::absolute(path / "manifest.json").lexically_normal();
  return whole.parent_path().parent_path().parent_path();
}

LoadedModel find_model(const fs::path& path, std::optional<int64_t> step) {
  const fs::path checkpoint = checkpoint_of(path, step);
  Manifest manifest = read_manifest(checkpoint);
  const auto text = manifest.facts.find("config");
  if (text == manifest.facts.end()) {
    throw data_error(checkpoint.string(), "/manifest.json does not hold the run's configuration");
  }
  const Config config = parse_config(text->second, (checkpoint / "manifest.json").string());
  Tokenizer tokenizer = Tokenizer::load((run_directory_of(path) / kRunTokenizer).string());
  auto model = make_model(config, static_cast<int64_t>(tokenizer.vocab_size()));
  return {checkpoint, std::move(manifest), config, std::move(model), std::move(tokenizer)};
}

void load_weights(LoadedModel& loaded, const std::shared_ptr<Pool>& pool) {
  Model& model = *loaded.model;
  require_memory(weights_memory(model));
  const bool on_gpu = pool && pool->device().is_cuda();
  const DType master = master_type(loaded.config.train.precision);
  model.visit([&](Param& w) { allocate(w, master, on_gpu ? nullptr : pool); });
  const std::vector<StateItem> items = weights_of(model);
  load_state(loaded.checkpoint, weights_only(loaded.manifest, items), items);
  model.visit([](Param& w) { round_to_value(w); });
  if (on_gpu) model.visit([&](Param& w) { keep_value_in(w, pool); });
}

}  // namespace anabranch
