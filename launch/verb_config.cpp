#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "data/loader.h"
#include "data/shard/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/rank_process.h"
#include "runtime/config/config.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/memory_need.h"
#include "runtime/models/registry.h"
#include "runtime/run_data.h"

namespace anabranch {

namespace {

struct CheckOptions {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 1;
};

// What `train` finds out about its data before the first step, but for the checksums of all of it.
// Returns a line for the head of the configuration.
std::string check_data(const Config& config, const Dataset& dataset, int64_t ranks) {
  const Tokenizer tokenizer = Tokenizer::load(dataset.tokenizer_path());
  const auto model = make_model(config, dataset.tokenizer().vocab_size);
  try {
    require_memory(training_memory(*model, static_cast<int>(ranks), config.optim.matrix));
  } catch (const Error& error) {  // the machine that trains may be another
    std::cerr << "anabranch: warning: " << error.what() << "\n";
  }
  LoaderOptions options = loader_options(config, dataset);
  options.micro_batch = config.train.micro_batch;
  options.prefetch = 1;
  Loader loader(dataset, options);
  (void)loader.next();
  check_words(config, loader);
  return join("data ", config.data.path, ": ", counted(dataset.train_tokens(), "token"),
              " to train on, ", dataset.val_tokens(), " to validate, vocabulary of ",
              tokenizer.vocab_size(), "; ", counted(model->cost().parameters, "parameter"));
}

void check(const CheckOptions& options) {
  Config config = load_config(options.file, options.sets);
  validate(config);
  (void)plan_batch(config, options.ranks);
  std::error_code ignored;
  std::optional<Dataset> dataset;
  if (std::filesystem::exists(config.data.path, ignored)) {
    dataset.emplace(Dataset::open(config.data.path));
    fill_steps(config, *dataset);
  }
  std::vector<std::string> header = build_lines();
  header.push_back("from " + options.file + " on " + counted(options.ranks, "rank") + ": " +
                   plan_text(plan_batch(config, options.ranks)));
  if (dataset) {
    header.push_back(check_data(config, *dataset, options.ranks));
  } else {
    std::cerr << "anabranch: warning: data.path " << config.data.path
              << " is not on this machine; the data was not checked\n";
  }
  std::cout << dump_config(config, header);
}

}  // namespace

void add_config(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("config", "checks configurations and lists their keys");
  verb->require_subcommand(1);

  auto options = std::make_shared<CheckOptions>();
  CLI::App* check_verb = verb->add_subcommand(
      "check", "reads a file and its data as `train` will, and prints it resolved");
  check_verb->add_option("CONFIG", options->file, "YAML file")->required();
  check_verb->add_option("--set", options->sets, "a.b=c: overrides a key")->allow_extra_args(false);
  add_whole(*check_verb, "--ranks", options->ranks, {1, 1 << 20},
            "ranks the batch is to be divided among");
  check_verb->callback([options] { run_alone([&] { check(*options); }); });

  auto markdown = std::make_shared<bool>(false);
  CLI::App* keys = verb->add_subcommand("keys", "every key, its default and what it does");
  keys->add_flag("--markdown", *markdown, "as the table of configs/README.md");
  keys->callback([markdown] {
    run_alone([&] { std::cout << (*markdown ? config_table() : config_help()); });
  });
}

}  // namespace anabranch
