#include <CLI/CLI.hpp>

#include "core/base/parallel_for.h"
#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/program.h"
#include "runtime/config/validate.h"

namespace anabranch {
namespace {

const char* const kDefaultConfig =
    "model: {preset: gpt2-85m}\ntrain: {batch_tokens: 4096, micro_batch: 4}\n";

}  // namespace

void add_bench_options(CLI::App& verb, BenchModel& model, bool required) {
  CLI::Option* config = verb.add_option("CONFIG", model.config, "YAML file");
  if (required) {
    config->required();
  } else {
    config->description("YAML file; default: gpt2-85m, 4 sequences of 1024 tokens");
  }
  verb.add_option("--set", model.sets, "a.b=c: overrides a key")->allow_extra_args(false);
  add_whole(verb, "--vocab", model.vocabulary, {2, 1 << 24}, "vocabulary");
  verb.add_flag("--json", model.json, "machine-readable");
}

Config bench_config(const BenchModel& model, RankProcess& process,
                    const std::vector<std::string>& changes) {
  std::vector<std::string> sets = {"data.path=none", "train.tokens=0", "train.epochs=0",
                                   "train.steps=1", "optim.warmup_steps=0"};
  sets.insert(sets.end(), model.sets.begin(), model.sets.end());
  Config config = model.config.empty() ? parse_config(kDefaultConfig, "gpt2-85m", sets, changes)
                                       : load_config(model.config, sets, changes);
  validate(config);
  if (config.parallel.threads > 0) {
    process.context().threads = static_cast<int>(config.parallel.threads);
    set_thread_count(process.context().threads);
  }
  return config;
}

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("bench", "measures: the figures we quote");
  verb->require_subcommand(1);
  add_bench_step(*verb, exit_code);
  add_bench_ops(*verb, exit_code);
  add_bench_comm(*verb, exit_code);
  add_bench_data(*verb);
  add_bench_generate(*verb, exit_code);
  add_bench_save(*verb, exit_code);
}

}  // namespace anabranch
