#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "launch/options.h"
#include "launch/plan_text.h"
#include "launch/program.h"
#include "launch/rank_process.h"
#include "runtime/config/validate.h"

namespace anabranch {
namespace {

// GPT-2's, where neither the command line nor a budget says another.
constexpr int64_t kAssumedVocabulary = 50257;

struct PlanWish {
  std::string file, machine, scale, svg;
  std::vector<std::string> sets;
  Cluster cluster;
  std::optional<int64_t> vocabulary;
  bool json = false;
};

// A plan needs neither data nor a length, and chooses the layout itself.
Config read_config_of(const PlanWish& wish) {
  std::vector<std::string> sets = {"data.path=none", "train.tokens=0", "train.epochs=0",
                                   "train.steps=1", "optim.warmup_steps=0"};
  sets.insert(sets.end(), wish.sets.begin(), wish.sets.end());
  sets.insert(sets.end(), {"parallel.model=auto", "parallel.stream_layout=auto"});
  Config config = load_config(wish.file, sets);
  validate(config);
  return config;
}

int64_t vocabulary_of(const PlanWish& wish, const Config& config) {
  if (wish.vocabulary) return *wish.vocabulary;
  return config.train.budget == Budget::kNone ? kAssumedVocabulary : config.train.budget_vocabulary;
}

std::vector<int> numbers_of_ranks(const std::string& list) {
  std::vector<int> all;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    all.push_back(static_cast<int>(read_whole("--scale " + list, word, {1, 1 << 20})));
  }
  return all;
}

void run(const PlanWish& wish) {
  const Config config = read_config_of(wish);
  const Machine machine = load_machine(wish.machine);
  const int64_t vocabulary = vocabulary_of(wish, config);
  if (wish.scale.empty()) {
    const Plan plan = make_plan(config, vocabulary, wish.cluster, machine);
    std::cout << (wish.json ? plan_json(plan) : plan_text(plan));
    if (plan.best() == nullptr) {
      throw config_error("no layout of ", wish.cluster.ranks(), " ranks is legal for ", wish.file,
                         ": change what the plan names, or the ranks");
    }
    return;
  }
  const ScaleCurves curves = scale_curves(config, vocabulary, numbers_of_ranks(wish.scale),
                                          wish.cluster.ranks_per_host, machine);
  if (!wish.svg.empty()) {
    write_atomically(wish.svg, draw_scale(curves, join(config.run.name, " on ", machine.name)));
  }
  std::cout << (wish.json ? scale_json(curves) : scale_text(curves));
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "plan",
      "what a cluster would do with a run: layouts, memory, bytes, step time; runs nothing");
  auto wish = std::make_shared<PlanWish>();
  verb->add_option("CONFIG", wish->file, "YAML file")->required();
  verb->add_option("--set", wish->sets, "a.b=c: overrides a key")->allow_extra_args(false);
  add_whole(*verb, "--nodes", wish->cluster.nodes, {1, 1 << 17}, "hosts");
  add_whole(*verb, "--ranks-per-node", wish->cluster.ranks_per_host, {1, 1024}, "ranks of a host");
  verb->add_option("--machine", wish->machine, "YAML file: configs/machines")->required();
  add_whole(*verb, "--vocab", wish->vocabulary, {2, 1 << 24},
            "vocabulary; default: the budget's, or GPT-2's 50257");
  CLI::Option* scale = verb->add_option(
      "--scale", wish->scale,
      "8,16,32: weak and strong scaling over so many ranks, on hosts of --ranks-per-node");
  verb->add_option("--svg", wish->svg, "file to draw the curves of --scale to")->needs(scale);
  verb->add_flag("--json", wish->json, "machine-readable");
  verb->callback([wish] { run_alone([&] { run(*wish); }); });
}

}  // namespace anabranch
