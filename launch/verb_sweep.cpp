#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/base/error.h"
#include "data/shard/dataset.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/rank_process.h"
#include "launch/sweep_verbs.h"
#include "runtime/config/number.h"
#include "runtime/sweep/expand.h"
#include "runtime/sweep/record.h"

namespace anabranch {

namespace {

struct ExpandWish {
  std::string file, out;
  SweepOptions options;
  bool json = false;
  bool unchosen = false;
};

// The table is for the sweep's vocabulary; the runs will take their data's.
void warn_of_data(const Sweep& sweep) {
  std::vector<std::string> seen;
  for (const SweepPoint& point : sweep.points) {
    const std::string& path = point.config.data.path;
    std::error_code ignored;
    if (std::ranges::find(seen, path) != seen.end()) continue;
    seen.push_back(path);
    if (!std::filesystem::exists(path, ignored)) continue;
    const int64_t vocabulary = Dataset::open(path).tokenizer().vocab_size;
    if (vocabulary == sweep.vocabulary) continue;
    std::cerr << "anabranch: warning: the data in " << path << " has a vocabulary of " << vocabulary
              << ", and this table is for one of " << sweep.vocabulary << "; see --vocab\n";
  }
}

void print_table(const Sweep& sweep) {
  size_t width = 5, family_width = 6;
  for (const SweepPoint& point : sweep.points) {
    width = std::max(width, point.id.size());
    family_width = std::max(family_width, point.family.size());
  }
  std::cout << fmt::format(
      "{}: {}, {}; vocabulary of {}; parameters, and multiply-adds of a token, in millions\n",
      sweep.name, counted(std::ssize(sweep.points), "point"),
      counted(std::ssize(sweep.runs), "run"), sweep.vocabulary);
  std::cout << fmt::format("{:<{}}  {:<{}}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "point", width,
                           "family", family_width, "params", "no embed", "linear", "front-end",
                           "attention", "total");
  const auto millions = [](auto count) { return static_cast<double>(count) * 1e-6; };
  for (const SweepPoint& point : sweep.points) {
    const ModelCost& cost = point.cost;
    std::cout << fmt::format("{:<{}}  {:<{}}", point.id, width, point.family, family_width);
    for (const double value : {millions(cost.parameters), millions(cost.non_embedding_parameters),
                               millions(cost.linear_macs), millions(cost.front_end_macs),
                               millions(cost.attention_macs), millions(cost.macs())}) {
      std::cout << fmt::format("{:>10.2f}", value);
    }
    std::cout << "\n";
  }
}

void expand(const ExpandWish& wish) {
  const Sweep sweep = expand_sweep(load_sweep(wish.file), wish.options);
  warn_of_data(sweep);
  for (const std::string& line : sweep.chosen) std::cerr << "anabranch: " << line << "\n";
  if (!sweep.unchosen.empty()) std::cerr << "anabranch: warning: " << sweep.unchosen << "\n";
  if (!wish.out.empty() && !wish.unchosen) require_chosen(sweep);
  if (!wish.out.empty()) write_runs(sweep, wish.out, build_lines());
  if (wish.json) {
    std::cout << record_json(record_of(sweep, wish.options));
    return;
  }
  print_table(sweep);
  if (!wish.out.empty()) {
    std::cout << counted(std::ssize(sweep.runs), "configuration") << " in " << wish.out << "\n";
  }
}

}  // namespace

void add_sweep_options(CLI::App& verb, std::string& file, SweepOptions& options) {
  verb.add_option("FILE", file, "sweep file")->required();
  verb.add_option("--set", options.sets, "a.b=c: overrides a key of every point")
      ->allow_extra_args(false);
  add_word(verb, "--scale", options.scale,
           {{"full", SweepScale::kFull}, {"tiny", SweepScale::kTiny}},
           "tiny: every point at a size for two cores, for trials");
}

void add_sweep_vocabulary(CLI::App& verb, SweepOptions& options) {
  const auto store = [&options](int64_t size) { options.vocabulary = size; };
  add_whole(verb, "--vocab", {1, 1 << 24}, "", store, "to count for, instead of the file's");
}

void add_sweep(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("sweep", "many runs from one file");
  verb->require_subcommand(1);
  auto wish = std::make_shared<ExpandWish>();
  CLI::App* sub = verb->add_subcommand(
      "expand", "lists a sweep's points with their sizes, and writes their configurations");
  add_sweep_options(*sub, wish->file, wish->options);
  sub->add_option("--out", wish->out, "folder for one configuration of each run");
  add_sweep_vocabulary(*sub, wish->options);
  sub->add_flag("--json", wish->json, "machine-readable");
  sub->add_flag("--unchosen", wish->unchosen, "write them though a pilot of `choose` is not done");
  sub->callback([wish] { run_alone([&] { expand(*wish); }); });
  add_sweep_plan(*verb);
  add_sweep_run(*verb, exit_code);
  add_sweep_status(*verb);
  add_sweep_report(*verb);
}

}  // namespace anabranch
