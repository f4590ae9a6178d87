#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "runtime/bench/ops_bench.h"
#include "runtime/config/number.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

struct OpsWish {
  BenchModel model;
  std::string type, machine;
  int64_t repeats = 5;
  bool count = false;
};

// What is printed of a run beside its ops.
struct OpsReport {
  const Config& config;
  const OpsWish& wish;
  int threads;
  std::string device;
  std::optional<Machine> machine;

  [[nodiscard]] OpBound bound(const OpTiming& op) const {
    return bound_of(op, *machine, compute_type(config.train.precision));
  }
};

std::string_view limit_of(const OpBound& bound) {
  return bound.by_memory() ? "memory" : "products";
}

nlohmann::ordered_json json_of(const OpTiming& op, const OpsReport& report) {
  nlohmann::ordered_json json = {{"op", op.name}};
  if (!report.wish.count) {
    nlohmann::ordered_json rate;  // null where operations are not counted
    if (op.flops > 0) rate = op.flops / op.seconds;
    json["seconds"] = op.seconds;
    json["flop_per_second"] = rate;
    json["bytes_per_second"] = op.bytes / op.seconds;
  }
  json["flop"] = op.flops;
  json["bytes"] = op.bytes;
  if (report.machine) {
    const OpBound bound = report.bound(op);
    json["bound_seconds"] = bound.seconds();
    json["bound_by"] = limit_of(bound);
    if (!report.wish.count) json["of_bound"] = bound.seconds() / op.seconds;
  }
  return json;
}

std::string title(const OpsReport& report) {
  std::string text = fmt::format("{:<28}{:>11}{:>11}", "op", "GFLOP", "MB");
  if (!report.wish.count) text += fmt::format("{:>11}{:>11}{:>9}", "ms", "GFLOP/s", "GB/s");
  if (report.machine) text += fmt::format("{:>11}  {:<9}", "at best ms", "for its");
  if (report.machine && !report.wish.count) text += fmt::format("{:>9}", "of that");
  return text + "\n";
}

std::string line_of(const OpTiming& op, const OpsReport& report) {
  const auto flop_text = [&](double value) {
    return op.flops > 0 ? fmt::format("{:.1f}", value * 1e-9) : "-";
  };
  std::string text =
      fmt::format("{:<28}{:>11}{:>11.2f}", op.name, flop_text(op.flops), op.bytes * 1e-6);
  if (!report.wish.count) {
    text += fmt::format("{:>11.3f}{:>11}{:>9.2f}", op.seconds * 1e3,
                        flop_text(op.flops / op.seconds), op.bytes / op.seconds * 1e-9);
  }
  if (report.machine) {
    const OpBound bound = report.bound(op);
    text += fmt::format("{:>11.4f}  {:<9}", bound.seconds() * 1e3, limit_of(bound));
    if (!report.wish.count) text += fmt::format("{:>8.1f}%", 100 * bound.seconds() / op.seconds);
  }
  return text + "\n";
}

void print(const std::vector<OpTiming>& ops, const OpsReport& report) {
  const Config& config = report.config;
  const std::string precision(word_of(config.train.precision));
  const int64_t rows = config.train.micro_batch * config.model.context;
  if (report.wish.model.json) {
    nlohmann::ordered_json document = {{"precision", precision},
                                       {"device", report.device},
                                       {"threads", report.threads},
                                       {"tokens", rows}};
    if (report.machine) document["machine"] = report.machine->name;
    document["ops"] = nlohmann::ordered_json::array();
    for (const OpTiming& op : ops) document["ops"].push_back(json_of(op, report));
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format("{}, width {}, {}, {}, on {}{}\n", counted(rows, "token"),
                           config.model.width, precision, counted(report.threads, "thread"),
                           report.device,
                           report.machine ? "; at best: " + report.machine->name : "")
            << title(report);
  for (const OpTiming& op : ops) std::cout << line_of(op, report);
}

int run(OpsWish wish, RankProcess& process) {
  if (!wish.type.empty()) wish.model.sets.push_back("train.precision=" + wish.type);
  const Config config = bench_config(wish.model, process);
  OpsReport report{config, wish, process.context().threads, process.devices().hardware(), {}};
  if (!wish.machine.empty()) report.machine = load_machine(wish.machine);
  // To count takes no memory of a GPU.
  const auto pool = wish.count ? std::make_shared<Pool>() : process.context().pool;
  const std::vector<OpTiming> ops =
      bench_ops(config, wish.model.vocabulary, wish.count ? 0 : wish.repeats, pool);
  if (process.first()) print(ops, report);
  return 0;
}

}  // namespace

void add_bench_ops(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand("ops", "each op of a step alone, at a model's shapes");
  auto wish = std::make_shared<OpsWish>();
  add_bench_options(*verb, wish->model, false);
  add_word(*verb, "--type", wish->type, {"fp32", "bf16"}, "instead of the configuration's");
  CLI::Option* repeats = add_whole(*verb, "--repeats", wish->repeats, {1, 100000}, "of each op");
  verb->add_flag("--count", wish->count, "operations and bytes alone: runs no op")
      ->excludes(repeats);
  verb->add_option("--machine", wish->machine,
                   "also what each op could at best take there; YAML file: configs/machines");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
