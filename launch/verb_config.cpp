#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

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
#include "runtime/config/validate_parallel.h"
#include "runtime/memory_need.h"
#include "runtime/models/cost_text.h"
#include "runtime/models/registry.h"
#include "runtime/rank_plan.h"
#include "runtime/run_data.h"
#include "runtime/train_step.h"

namespace anabranch {

namespace {

// GPT-2's, where neither the data nor the command line says another.
constexpr int64_t kAssumedVocabulary = 50257;

struct CheckOptions {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 1, vocabulary = 0;
  bool json = false;
};

// What is known of the data.
struct DataFacts {
  bool here = false;
  int64_t train_tokens = 0, val_tokens = 0;
  int64_t vocabulary = kAssumedVocabulary;
};

// Where the vocabulary that parameters are counted for comes from.
std::string vocabulary_source(const CheckOptions& options, const DataFacts& data) {
  if (options.vocabulary > 0) return "option";
  return data.here ? "data" : "assumed";
}

// What `train` finds out about its data before the first step, but for the checksums of all of it.
DataFacts check_data(const Config& config, const Dataset& dataset, int64_t ranks) {
  const Tokenizer tokenizer = Tokenizer::load(dataset.tokenizer_path());
  const NeedOf need = need_of(config, dataset.tokenizer().vocab_size);
  const MemoryNeed of_rank = need(shape_of(config, static_cast<int>(ranks)));
  try {
    require_memory(of_rank);
  } catch (const Error& error) {  // the machine that trains may be another
    std::cerr << "anabranch: warning: " << error.what() << "\n";
  }
  LoaderOptions options = loader_options(config, dataset);
  options.micro_batch = config.train.micro_batch;
  options.prefetch = 1;
  Loader loader(dataset, options);
  (void)loader.next();
  check_words(config, loader);
  return {true, dataset.train_tokens(), dataset.val_tokens(),
          static_cast<int64_t>(tokenizer.vocab_size())};
}

void print_json(const CheckOptions& options, const Config& config, const BatchPlan& plan,
                const DataFacts& data, const ModelCost& cost) {
  nlohmann::ordered_json document = {
      {"file", options.file},
      {"name", config.run.name},
      {"type", word_of(config.model.type)},
      {"ranks", options.ranks},
      {"steps", plan.steps},
      {"sequences", plan.sequences},
      {"accumulation", plan.accumulation},
      {"data", nullptr},
      {"vocabulary", options.vocabulary > 0 ? options.vocabulary : data.vocabulary},
      {"vocabulary_from", vocabulary_source(options, data)}};
  if (data.here) {
    document["data"] = {{"path", config.data.path},
                        {"train_tokens", data.train_tokens},
                        {"val_tokens", data.val_tokens},
                        {"vocabulary", data.vocabulary}};
  }
  for (const auto& [name, value] : cost_fields(cost)) document[name] = value;
  std::cout << document.dump(2) << "\n";
}

void print_yaml(const CheckOptions& options, const Config& config, const BatchPlan& plan,
                const DataFacts& data, const ModelCost& cost) {
  std::vector<std::string> header = build_lines();
  header.push_back("from " + options.file + " on " + counted(options.ranks, "rank") + ": " +
                   batch_text(plan));
  if (data.here) {
    header.push_back(join("data ", config.data.path, ": ", counted(data.train_tokens, "token"),
                          " to train on, ", data.val_tokens, " to validate, vocabulary of ",
                          data.vocabulary));
  }
  header.push_back(join("model with a vocabulary of ",
                        options.vocabulary > 0 ? options.vocabulary : data.vocabulary, " (",
                        vocabulary_source(options, data), "): ", cost_line(cost)));
  std::cout << dump_config(config, header);
}

void check(const CheckOptions& options) {
  Config config = load_config(options.file, options.sets);
  validate(config);
  check_ranks(config, static_cast<int>(options.ranks));
  DataFacts data;
  std::error_code ignored;
  if (std::filesystem::exists(config.data.path, ignored)) {
    const Dataset dataset = Dataset::open(config.data.path);
    fill_steps(config, dataset);
    data = check_data(config, dataset, options.ranks);
  } else {
    if (config.train.budget != Budget::kNone) data.vocabulary = config.train.budget_vocabulary;
    std::cerr << "anabranch: warning: data.path " << config.data.path
              << " is not on this machine; the data was not checked\n";
  }
  const int64_t vocabulary = options.vocabulary > 0 ? options.vocabulary : data.vocabulary;
  const ModelCost cost = make_model(config, vocabulary)->cost();
  const BatchPlan plan = plan_batch(config, options.ranks);
  (options.json ? print_json : print_yaml)(options, config, plan, data, cost);
}

struct GetOptions {
  std::string file;
  std::vector<std::string> keys, sets;
};

// Prints the values of keys, a line each.
void get(const GetOptions& options) {
  const std::string resolved = dump_config(load_config(options.file, options.sets));
  const YamlNode root = parse_yaml(resolved, options.file);
  for (const std::string& key : options.keys) {
    const YamlNode* node = &root;
    std::istringstream parts(key);
    for (std::string part; node != nullptr && std::getline(parts, part, '.');) {
      node = node->find(part);
    }
    if (node == nullptr || node->kind != YamlNode::Kind::kScalar) {
      throw usage_error(options.file, " has no value \"", key, "\"; `anabranch config check ",
                        options.file, "` lists what it has");
    }
    std::cout << node->value << "\n";
  }
}

void add_get(CLI::App& config) {
  auto options = std::make_shared<GetOptions>();
  CLI::App* verb = config.add_subcommand("get", "prints values of a configuration, for scripts");
  verb->add_option("CONFIG", options->file, "YAML file")->required();
  verb->add_option("KEY", options->keys, "as in run.dir; a line is printed for each")->required();
  verb->add_option("--set", options->sets, "a.b=c: overrides a key")->allow_extra_args(false);
  verb->callback([options] { run_alone([&] { get(*options); }); });
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
  add_whole(
      *check_verb, "--vocab", {1, 1 << 24}, "",
      [options](int64_t size) { options->vocabulary = size; },
      "to count parameters for; default: the data's, or GPT-2's 50257 without data");
  check_verb->add_flag("--json", options->json,
                       "plan, parameters and multiply-adds, machine-readable");
  check_verb->callback([options] { run_alone([&] { check(*options); }); });

  add_get(*verb);

  auto markdown = std::make_shared<bool>(false);
  CLI::App* keys = verb->add_subcommand("keys", "every key, its default and what it does");
  keys->add_flag("--markdown", *markdown, "as the table of configs/README.md");
  keys->callback([markdown] {
    run_alone([&] { std::cout << (*markdown ? config_table() : config_help()); });
  });
}

}  // namespace anabranch
