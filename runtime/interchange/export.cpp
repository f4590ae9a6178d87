#include "runtime/interchange/export.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/nn/init.h"
#include "data/hdf5/file.h"
#include "data/loader.h"
#include "runtime/config/validate.h"
#include "runtime/interchange/safetensors.h"
#include "runtime/loaded_model.h"
#include "runtime/memory_need.h"
#include "runtime/models/registry.h"
#include "runtime/rates.h"
#include "runtime/run_data.h"
#include "runtime/training_state.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

// The model of a run before its first step: nothing but its configuration is needed.
LoadedModel initial_model(const fs::path& run) {
  if (!fs::exists(run / "config.yaml")) {
    throw data_error(run.string(), " is no run directory: it has no config.yaml");
  }
  const Config config = load_config((run / "config.yaml").string());
  Tokenizer tokenizer = Tokenizer::load((run / kRunTokenizer).string());
  auto model = make_model(config, static_cast<int64_t>(tokenizer.vocab_size()));
  require_memory(weights_memory(*model));
  model->visit([&](Param& w) {
    allocate(w, master_type(config.train.precision));
    initialise(w, static_cast<uint64_t>(config.run.seed));
  });
  return {run, {}, config, std::move(model), std::move(tokenizer)};
}

std::string config_json(const LoadedModel& loaded, int64_t rates) {
  const Config& c = loaded.config;
  const Rates schedule(c);
  std::vector<double> learning_rates;
  for (int64_t i = 0; i < rates; ++i)
    learning_rates.push_back(schedule.lr(loaded.manifest.step + i));
  const nlohmann::ordered_json document = {{"model_type", word_of(c.model.type)},
                                           {"n_layer", c.model.layers},
                                           {"n_head", c.model.heads},
                                           {"n_embd", c.model.width},
                                           {"n_inner", c.model.ffn_width},
                                           {"n_positions", c.model.context},
                                           {"vocab_size", loaded.model->vocabulary()},
                                           {"gelu", word_of(c.model.gpt2.gelu)},
                                           {"ln_eps", c.model.gpt2.norm_eps},
                                           {"step", loaded.manifest.step},
                                           {"optim",
                                            {{"lr", c.optim.lr},
                                             {"min_lr", c.optim.lr * c.optim.min_lr_ratio},
                                             {"warmup_steps", c.optim.warmup_steps},
                                             {"steps", planned_steps(c.train)},
                                             {"beta1", c.optim.beta1},
                                             {"beta2", c.optim.beta2},
                                             {"eps", c.optim.eps},
                                             {"weight_decay", c.optim.weight_decay},
                                             {"clip_norm", c.optim.clip}}},
                                           {"learning_rates", learning_rates}};
  return document.dump(2) + "\n";
}

// The batches of the steps after `first_sample`, as any number of ranks would see them.
void write_batches(const fs::path& path, const LoadedModel& loaded, int64_t batches) {
  const Config& c = loaded.config;
  const Dataset dataset = Dataset::open(c.data.path);
  const int64_t T = c.model.context, B = c.train.batch_tokens / T;
  LoaderOptions options = loader_options(c, dataset);
  options.start_sample = loaded.manifest.next_sample;
  Loader loader(dataset, options);
  Hdf5Writer file(path.string());
  file.add("tokens", Hdf5Type::kI32, {batches, B, T + 1});
  if (c.data.document_mask) file.add("document_starts", Hdf5Type::kI32, {batches, B, T});
  file.lay_out();
  std::vector<int32_t> rows(static_cast<size_t>(B * (T + 1)));
  const auto bytes = static_cast<int64_t>(rows.size() * sizeof(int32_t));
  for (int64_t i = 0; i < batches; ++i) {
    const Batch batch = loader.next();
    for (int64_t b = 0; b < B; ++b) {
      const int32_t* inputs = batch.inputs.data<int32_t>() + b * T;
      std::copy_n(inputs, T, rows.begin() + b * (T + 1));
      rows[static_cast<size_t>(b * (T + 1) + T)] = batch.targets.data<int32_t>()[b * T + T - 1];
    }
    (void)file.write("tokens", rows.data(), bytes, i * bytes);
    if (batch.document_starts.empty()) continue;
    const auto size = static_cast<int64_t>(batch.document_starts.span<int32_t>().size_bytes());
    (void)file.write("document_starts", batch.document_starts.data<int32_t>(), size, i * size);
  }
  file.commit();
}

// A data set, a run, or a folder of somebody's own is not overwritten; an earlier export is.
void refuse_other_folders(const fs::path& out) {
  const bool exported = fs::exists(out / "model.safetensors");
  for (const char* other : {"dataset.json", "checkpoints", "config.json"}) {
    if (!fs::exists(out / other) || (exported && other == std::string("config.json"))) continue;
    throw usage_error(out.string(), " already holds ", other,
                      ", which no export wrote; export to a ", "folder of its own");
  }
}

}  // namespace

ExportReport export_run(const ExportOptions& options) {
  const bool initial = options.step == int64_t{0};
  LoadedModel loaded = initial ? initial_model(run_directory_of(options.path))
                               : find_model(options.path, options.step);
  if (!initial) load_weights(loaded, nullptr);
  if (loaded.config.model.type != ModelType::kGpt2) {
    throw config_error("model.type is ", word_of(loaded.config.model.type),
                       ", and only gpt2 models are exported; read the checkpoint's HDF5 files");
  }
  refuse_other_folders(options.out);
  std::error_code failure;
  fs::create_directories(options.out, failure);
  if (failure) throw io_error("cannot create ", options.out.string(), ": ", failure.message());
  ExportReport report{loaded.manifest.step, {}};
  const auto file = [&](const char* name) {
    return report.files.emplace_back(options.out / name).string();
  };
  write_safetensors(file("model.safetensors"), weights_of(*loaded.model),
                    {{"format", "pt"}, {"step", std::to_string(loaded.manifest.step)}});
  write_atomically(file("config.json"), config_json(loaded, std::max<int64_t>(options.batches, 1)));
  loaded.tokenizer.save(file(kRunTokenizer));
  if (options.batches > 0) write_batches(file("batches.h5"), loaded, options.batches);
  return report;
}

}  // namespace anabranch
