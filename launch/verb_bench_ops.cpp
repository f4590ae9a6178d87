#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "runtime/bench/ops_bench.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {

struct OpsWish {
  BenchModel model;
  std::string type;
  int64_t repeats = 5;
};

nlohmann::ordered_json json_of(const OpTiming& op) {
  nlohmann::ordered_json rate;  // null where operations are not counted
  if (op.flops > 0) rate = op.flops / op.seconds;
  return {{"op", op.name},
          {"seconds", op.seconds},
          {"flop_per_second", rate},
          {"bytes_per_second", op.bytes / op.seconds}};
}

void print(const std::vector<OpTiming>& ops, const Config& config, int threads, bool json) {
  const std::string precision(word_of(config.train.precision));
  const int64_t rows = config.train.micro_batch * config.model.context;
  if (json) {
    nlohmann::ordered_json document = {
        {"precision", precision}, {"threads", threads}, {"tokens", rows}, {"ops", {}}};
    for (const OpTiming& op : ops) document["ops"].push_back(json_of(op));
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format("{}, width {}, {}, {}\n{:<28}{:>11}{:>11}{:>9}\n",
                           counted(rows, "token"), config.model.width, precision,
                           counted(threads, "thread"), "op", "ms", "GFLOP/s", "GB/s");
  for (const OpTiming& op : ops) {
    const std::string rate =
        op.flops > 0 ? fmt::format("{:.1f}", op.flops / op.seconds * 1e-9) : "-";
    std::cout << fmt::format("{:<28}{:>11.3f}{:>11}{:>9.2f}\n", op.name, op.seconds * 1e3, rate,
                             op.bytes / op.seconds * 1e-9);
  }
}

int run(OpsWish wish, RankProcess& process) {
  if (!wish.type.empty()) wish.model.sets.push_back("train.precision=" + wish.type);
  const Config config = bench_config(wish.model, process);
  const std::vector<OpTiming> ops =
      bench_ops(config, wish.model.vocabulary, wish.repeats, process.context().pool);
  if (process.first()) print(ops, config, process.context().threads, wish.model.json);
  return 0;
}

}  // namespace

void add_bench_ops(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand("ops", "each op of a step alone, at a model's shapes");
  auto wish = std::make_shared<OpsWish>();
  add_bench_options(*verb, wish->model, false);
  add_word(*verb, "--type", wish->type, {"fp32", "bf16"}, "instead of the configuration's");
  add_whole(*verb, "--repeats", wish->repeats, {1, 100000}, "of each op");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
