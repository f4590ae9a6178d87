#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include "launch/program.h"
#include "runtime/config/config.h"
#include "runtime/config/validate.h"

namespace anabranch {

namespace {

struct CheckOptions {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 1;
};

void check(const CheckOptions& options) {
  const Config config = load_config(options.file, options.sets);
  validate(config);
  const BatchPlan plan = plan_batch(config, options.ranks);
  std::vector<std::string> header = build_lines();
  header.push_back("from " + options.file + " on " + std::to_string(options.ranks) + " ranks: " +
                   std::to_string(plan.steps) + " steps of " + std::to_string(plan.sequences) +
                   " sequences, " + std::to_string(plan.accumulation) + " micro-batches a rank");
  std::cout << dump_config(config, header);
}

}  // namespace

void add_config(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("config", "checks configurations and lists their keys");
  verb->require_subcommand(1);

  auto options = std::make_shared<CheckOptions>();
  CLI::App* check_verb =
      verb->add_subcommand("check", "reads a file as `train` will, and prints it resolved");
  check_verb->add_option("CONFIG", options->file, "YAML file")->required();
  check_verb->add_option("--set", options->sets, "a.b=c: overrides a key")->allow_extra_args(false);
  check_verb->add_option("--ranks", options->ranks, "ranks the batch is to be divided among")
      ->check(CLI::Range(1, 1 << 20));
  check_verb->callback([options] { check(*options); });

  auto markdown = std::make_shared<bool>(false);
  CLI::App* keys = verb->add_subcommand("keys", "every key, its default and what it does");
  keys->add_flag("--markdown", *markdown, "as the table of configs/README.md");
  keys->callback([markdown] { std::cout << (*markdown ? config_table() : config_help()); });
}

}  // namespace anabranch
