#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/parallel_for.h"
#include "data/hdf5/raw_file.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "launch/rank_process.h"
#include "runtime/config/number.h"
#include "runtime/config/section_reader.h"
#include "runtime/toy/boundary_plot.h"

namespace anabranch {
namespace {

using Json = nlohmann::ordered_json;

struct ToyWish {
  std::string config, out;
  std::vector<std::string> sets;
  bool json = false;
};

// A configuration as JSON.
struct JsonOfKeys {
  template <class S>
  void operator()(const char* key, S& section) {
    JsonOfKeys inner;
    section.visit(inner);
    json[key] = inner.json;
  }

  template <class T>
  void operator()(const char* key, T& field, T /*min*/, T /*max*/, const char* /*help*/) {
    json[key] = field;
  }

  Json json;
};

struct Spread {
  double mean = 0, deviation = 0;  // n - 1 below; 0 for one value
};

Spread spread_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Spread s;
  for (const double v : values) s.mean += v / n;
  for (const double v : values) s.deviation += (v - s.mean) * (v - s.mean);
  s.deviation = n > 1 ? std::sqrt(s.deviation / (n - 1)) : 0;
  return s;
}

Json json_of(const ClassifierResult& result, const std::optional<ErrorRange>& known) {
  const Spread train = spread_of(result.train_errors), test = spread_of(result.test_errors);
  Json json = {{"parameters", result.parameters},
               {"macs_per_point", result.macs},
               {"train_error", {{"mean", train.mean}, {"sd", train.deviation}}},
               {"test_error", {{"mean", test.mean}, {"sd", test.deviation}}},
               {"train_errors", result.train_errors},
               {"test_errors", result.test_errors},
               {"last_losses", result.losses}};
  if (known) {
    json["check"] = {{"low", known->low},
                     {"high", known->high},
                     {"required", known->required},
                     {"within", within(result, *known)}};
  }
  Json weights;
  result.first->visit([&](const Param& w) { weights[w.name] = w.master.span<float>(); });
  json["first_weights"] = weights;
  return json;
}

Json json_of(const ClustersConfig& config, const ClustersResult& result) {
  JsonOfKeys keys;
  ClustersConfig copy = config;
  copy.visit(keys);
  return {{"build", build_lines()},
          {"config", keys.json},
          {"bayes_error", bayes_error(config.data)},
          {"bisector_error", bisector_error(config.data)},
          {"dense", json_of(result.dense, known_range(config, false))},
          {"mixed", json_of(result.mixed, known_range(config, true))}};
}

std::string check_text(const ClassifierResult& result, const std::optional<ErrorRange>& known) {
  if (!known) return "-";
  const std::string range = known->high >= 1  ? fmt::format(">= {}", number_text(known->low))
                            : known->low <= 0 ? fmt::format("<= {}", number_text(known->high))
                                              : fmt::format("{} to {}", number_text(known->low),
                                                            number_text(known->high));
  const bool good = within(result, *known);
  if (!known->required) return range + " over 5 seeds elsewhere";
  return range + (good ? " for all seeds: holds" : " for all seeds: DOES NOT HOLD");
}

std::string row(const char* name, const ClassifierResult& r,
                const std::optional<ErrorRange>& known) {
  const auto cell = [](const std::vector<double>& errors) {
    const Spread s = spread_of(errors);
    return fmt::format("{:.4f} +- {:.4f}", s.mean, s.deviation);
  };
  const auto [low, high] = std::ranges::minmax(r.test_errors);
  return fmt::format("{:<6} {:>10} {:>5}  {}  {}  {:.4f} to {:.4f}  {}\n", name, r.parameters,
                     r.macs, cell(r.train_errors), cell(r.test_errors), low, high,
                     check_text(r, known));
}

void print(const ClustersConfig& config, const ClustersResult& result) {
  const ClusterDataKeys& d = config.data;
  std::cout << fmt::format(
      "theta0 {} degrees, sigma {}, c {}, delta {}; {} to train on, {} to test; {}\n"
      "{:<6} {:>10} {:>5}  {:<16}  {:<16}  {:<16}  {}\n",
      number_text(d.angle), number_text(d.sigma), number_text(d.distance), number_text(d.offset),
      counted(d.train_points, "point"), d.test_points, counted(config.seeds, "seed"), "model",
      "parameters", "MACs", "train error", "test error", "of the seeds", "expected test error");
  std::cout << row("dense", result.dense, known_range(config, false))
            << row("mixed", result.mixed, known_range(config, true))
            << fmt::format("best possible {:.4f}; a plane between the two directions {:.4f}\n",
                           bayes_error(d), bisector_error(d));
}

bool holds(const ClustersConfig& config, const ClassifierResult& result, bool mixed) {
  const auto known = known_range(config, mixed);
  return !known || !known->required || within(result, *known);
}

int run(const ToyWish& wish) {
  const auto config =
      read_sections<ClustersConfig>(read_config_file(wish.config), wish.config, wish.sets);
  set_thread_count(1);  // steps take microseconds: threads would only wait for each other
  Progress progress("toy clusters", static_cast<double>(config.seeds), Progress::Unit::kCount);
  ClustersResult result = run_clusters(
      config, [&](int64_t done) { progress.update(static_cast<double>(done), "seeds"); });
  progress.update(static_cast<double>(config.seeds), "seeds");
  progress.finish();
  const std::string json = json_of(config, result).dump(2) + "\n";
  if (!wish.out.empty()) {
    const std::filesystem::path out = wish.out;
    std::filesystem::create_directories(out);
    write_atomically((out / "results.json").string(), json);
    write_atomically((out / "boundary.svg").string(), draw_boundaries(config, result));
  }
  if (wish.json) {
    std::cout << json;
  } else {
    print(config, result);
    if (!wish.out.empty())
      std::cout << "wrote results.json and boundary.svg to " << wish.out << "\n";
  }
  const bool good = holds(config, result.dense, false) && holds(config, result.mixed, true);
  return good ? 0 : static_cast<int>(Fault::kInternal);
}

}  // namespace

void add_toy(CLI::App& app, int& exit_code) {
  CLI::App* toy = app.add_subcommand("toy", "small experiments of the papers, without text");
  toy->require_subcommand(1);
  auto wish = std::make_shared<ToyWish>();
  CLI::App* verb = toy->add_subcommand(
      "clusters", "cMoLLM's clusters: a linear classifier beside a mixture of linear streams");
  verb->add_option("CONFIG", wish->config, "YAML file: configs/toy/clusters.yaml lists all keys")
      ->required();
  verb->add_option("--set", wish->sets, "a.b=c: overrides a key")->allow_extra_args(false);
  verb->add_option("--out", wish->out, "folder for results.json and the drawn boundary.svg");
  verb->add_flag("--json", wish->json, "machine-readable results");
  verb->callback([wish, &exit_code] { run_alone([&] { exit_code = run(*wish); }); });
}

}  // namespace anabranch
