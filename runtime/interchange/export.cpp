#include "runtime/interchange/export.h"

#include <algorithm>
#include <array>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/nn/init.h"
#include "core/tensor/convert.h"
#include "data/hdf5/raw_file.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/interchange/hf_gpt2.h"
#include "runtime/interchange/replay_files.h"
#include "runtime/interchange/safetensors.h"
#include "runtime/interchange/staged_folder.h"
#include "runtime/interchange/weight_files.h"
#include "runtime/loaded_model.h"
#include "runtime/memory_need.h"
#include "runtime/models/registry.h"
#include "runtime/training_state.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

constexpr std::array<const char*, 6> kExportFiles = {
    kWeightFile,   "config.json",           "config.yaml",
    kRunTokenizer, "tokenizer_config.json", "batches.h5"};

// The model of a run before its first step: nothing but its configuration is needed.
LoadedModel initial_model(const fs::path& run) {
  if (!fs::exists(run / "config.yaml")) {
    throw data_error(run.string(), " is no run directory: it has no config.yaml");
  }
  const Config config = load_config((run / "config.yaml").string());
  Tokenizer tokenizer = Tokenizer::load((run / kRunTokenizer).string());
  auto model = make_model(config, static_cast<int64_t>(tokenizer.vocab_size()));
  return {run, {}, config, std::move(model), std::move(tokenizer)};
}

void initialise_weights(LoadedModel& loaded) {
  require_memory(weights_memory(*loaded.model));
  loaded.model->visit([&](Param& w) {
    allocate(w, master_type(loaded.config.train.precision));
    initialise(w, static_cast<uint64_t>(loaded.config.run.seed));
  });
}

// Whether step 0 is what a run starts from by itself: an imported one has a checkpoint of it.
bool is_initial(const ExportOptions& options) {
  const fs::path run = run_directory_of(options.path);
  return options.step == int64_t{0} &&
         !fs::exists(CheckpointDirectory(run / "checkpoints").at(0) / "manifest.json");
}

LoadedModel model_of(const ExportOptions& options) {
  return is_initial(options) ? initial_model(run_directory_of(options.path))
                             : find_model(options.path, options.step);
}

ExportFormat format_of(const ExportOptions& options, const Config& config) {
  const bool gpt2 = config.model.type == ModelType::kGpt2;
  const ExportFormat format = options.format.value_or(
      gpt2 && options.batches == 0 ? ExportFormat::kHf : ExportFormat::kGeneric);
  if (format == ExportFormat::kGeneric) return format;
  if (!gpt2) {
    throw config_error("model.type is ", word_of(config.model.type),
                       ", and Hugging Face's GPT-2 is gpt2 alone: export with --format generic");
  }
  if (options.batches > 0) {
    throw usage_error("--batches go with --format generic, whose names replaying reads");
  }
  return format;
}

// Parameters, then buffers, as weights_of() has them.
std::vector<ExportName> names_of(Model& model, const Config& config, ExportFormat format,
                                 bool bf16) {
  std::vector<ExportName> names;
  const DType type = bf16 ? DType::kBF16 : master_type(config.train.precision);
  model.visit([&](Param& w) {
    const HfName hf = format == ExportFormat::kHf ? hf_gpt2_name(w) : HfName{w.name};
    const Shape shape = hf.transposed ? Shape{w.shape[1], w.shape[0]} : w.shape;
    names.push_back({w.name, hf.name, shape, type, hf.transposed});
  });
  model.visit_buffers([&](Buffer& b) {
    names.push_back({b.name, b.name, b.value.shape(), b.value.dtype(), false});
  });
  return names;
}

std::vector<StateItem> tensors_of(Model& model, const std::vector<ExportName>& names) {
  std::vector<StateItem> items = weights_of(model);
  AB_CHECK(items.size() == names.size(), items.size(), " tensors, ", names.size(), " names");
  for (size_t i = 0; i < items.size(); ++i) {
    const Tensor& value = items[i].value;
    items[i].value = converted(value, names[i].type, "export");
    if (names[i].transposed) items[i].value = transposed(items[i].value);
    items[i].name = names[i].name;
  }
  return items;
}

// What a folder holds that no export wrote; empty: nothing.
std::string foreign_file(const fs::path& folder) {
  for (const auto& item : fs::directory_iterator(folder)) {
    std::string name = item.path().filename().string();
    if (std::ranges::find(kExportFiles, name) == kExportFiles.end()) return name;
  }
  if (fs::is_empty(folder)) return "";
  std::ifstream in(folder / "config.json");
  const auto config = nlohmann::json::parse(in, nullptr, false);
  return config.is_object() && config.contains("anabranch") ? "" : "config.json";
}

// A data set, a run, or a folder of somebody's own is not overwritten; an earlier export is.
void refuse_other_folders(const fs::path& out) {
  if (!fs::exists(out)) return;
  if (!fs::is_directory(out)) throw usage_error(out.string(), " is no folder; name one to make");
  const std::string foreign = foreign_file(out);
  if (foreign.empty()) return;
  throw usage_error(out.string(), " already holds ", foreign,
                    ", which no export wrote; export to a folder of its own");
}

}  // namespace

ExportReport export_run(const ExportOptions& options) {
  LoadedModel loaded = model_of(options);
  ExportReport report{loaded.manifest.step, format_of(options, loaded.config), {}};
  refuse_other_folders(options.out);
  if (is_initial(options)) {
    initialise_weights(loaded);
  } else {
    load_weights(loaded, nullptr);
  }
  const auto names = names_of(*loaded.model, loaded.config, report.format, options.bf16);
  StagedFolder folder(options.out);
  const auto file = [&](const char* name) {
    report.files.emplace_back(options.out / name);
    return (folder.path() / name).string();
  };
  write_safetensors(file(kWeightFile), tensors_of(*loaded.model, names),
                    {{"format", "pt"}, {"step", std::to_string(report.step)}});
  const auto write = [&](const char* name, const std::string& text) {
    write_atomically(file(name), text);
  };
  if (report.format == ExportFormat::kHf) {
    const DType type = names.front().type;
    write("config.json", write_hf_gpt2_config(loaded.config, loaded.tokenizer, type, report.step));
    write("tokenizer_config.json", write_hf_tokenizer_config(loaded.config, loaded.tokenizer));
  } else {
    write("config.json", write_generic_config(loaded, std::max<int64_t>(options.batches, 1)));
    write("config.yaml", dump_config(loaded.config));
  }
  loaded.tokenizer.save(file(kRunTokenizer));
  if (options.batches > 0) write_batches(file("batches.h5"), loaded, options.batches);
  folder.publish();
  return report;
}

std::vector<ExportName> export_names(const ExportOptions& options) {
  const LoadedModel loaded = model_of(options);
  return names_of(*loaded.model, loaded.config, format_of(options, loaded.config), options.bf16);
}

}  // namespace anabranch
