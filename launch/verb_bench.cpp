#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/parallel_for.h"
#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/program.h"
#include "runtime/config/validate.h"

namespace anabranch {
namespace {

const char* const kDefaultConfig =
    "model: {preset: gpt2-85m}\ntrain: {batch_tokens: 4096, micro_batch: 4}\n";

Config read_model(const BenchModel& model, const std::vector<std::string>& changes) {
  std::vector<std::string> sets = {"data.path=none", "train.tokens=0", "train.epochs=0",
                                   "train.steps=1", "optim.warmup_steps=0"};
  sets.insert(sets.end(), model.sets.begin(), model.sets.end());
  Config config = model.config.empty() ? parse_config(kDefaultConfig, "gpt2-85m", sets, changes)
                                       : load_config(model.config, sets, changes);
  validate(config);
  return config;
}

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

Config bench_config(const BenchModel& model, RankProcess& process, bool train) {
  Config config = read_model(model, {});
  if (config.parallel.threads > 0) {
    process.context().threads = static_cast<int>(config.parallel.threads);
    set_thread_count(process.context().threads);
  }
  process.take_device(train ? device_wish(config) : inference_wish(config));
  return config;
}

CLI::Option* add_against_option(CLI::App& verb, BenchModel& model) {
  return verb
      .add_option(
          "--against", model.against,
          "a.b=c: a second configuration with this key over CONFIG's and --set's takes "
          "turns with it; repeat it for more keys. Keys that its family has not are left out")
      ->allow_extra_args(false);
}

Config bench_against(const BenchModel& model) {
  const Config first = read_model(model, {});
  Config second = read_model(model, model.against);
  if (second.device != first.device || second.parallel.threads != first.parallel.threads) {
    throw usage_error(
        "--against changes device or parallel.threads, which both configurations share: give it "
        "with --set");
  }
  return second;
}

std::string ratio_text(const PairedRatio& r) {
  return fmt::format("{:.4f} ({:.4f} to {:.4f} at {:.1f}%, {} pair{})", r.median, r.low, r.high,
                     100 * r.confidence, r.pairs, r.pairs == 1 ? "" : "s");
}

std::vector<std::pair<std::string, double>> ratio_fields(const PairedRatio& r) {
  return {{"median", r.median},
          {"low", r.low},
          {"high", r.high},
          {"confidence", r.confidence},
          {"pairs", static_cast<double>(r.pairs)}};
}

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("bench", "measures: the figures we quote");
  verb->require_subcommand(1);
  add_bench_step(*verb, exit_code);
  add_bench_ops(*verb, exit_code);
  add_bench_comm(*verb, exit_code);
  add_bench_dispatch(*verb, exit_code);
  add_bench_data(*verb);
  add_bench_generate(*verb, exit_code);
  add_bench_save(*verb, exit_code);
  add_bench_streams(*verb, exit_code);
}

}  // namespace anabranch
