#include "runtime/interchange/replay_files.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/hdf5/file.h"
#include "data/loader.h"
#include "runtime/config/validate.h"
#include "runtime/rates.h"
#include "runtime/run_data.h"

namespace anabranch {

std::string write_generic_config(const LoadedModel& loaded, int64_t rates) {
  const Config& c = loaded.config;
  const Rates schedule(c);
  std::vector<double> learning_rates;
  for (int64_t i = 0; i < rates; ++i)
    learning_rates.push_back(schedule.lr(loaded.manifest.step + i));
  nlohmann::ordered_json document = {
      {"model_type", word_of(c.model.type)},
      {"n_layer", c.model.layers},
      {"n_head", c.model.heads},
      {"n_embd", c.model.width},
      {"n_inner", c.model.ffn_width},
      {"n_positions", c.model.context},
      {"vocab_size", loaded.model->vocabulary()},
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
      {"learning_rates", learning_rates},
      {"anabranch", {{"format", "generic"}, {"step", loaded.manifest.step}}}};
  if (c.model.type == ModelType::kGpt2) {
    document["gelu"] = word_of(c.model.gpt2.gelu);
    document["ln_eps"] = c.model.gpt2.norm_eps;
  }
  return document.dump(2) + "\n";
}

void write_batches(const std::filesystem::path& path, const LoadedModel& loaded, int64_t batches) {
  const Config& c = loaded.config;
  if (c.data.path.empty()) {
    throw usage_error("--batches: this checkpoint was imported without data; export one that was ",
                      "trained from it");
  }
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

}  // namespace anabranch
