#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/progress.h"
#include "runtime/bench/dispatch_bench.h"
#include "runtime/bench/timing.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {

struct DispatchWish {
  DispatchBenchOptions options;
  bool bf16 = false, json = false;
};

nlohmann::ordered_json json_of(const DispatchBench::Side& side) {
  nlohmann::ordered_json stages;
  for (const DispatchBench::Stage& stage : side.stages) stages[stage.name] = stage.seconds;
  return {{"seconds", median(side.seconds)}, {"all_seconds", side.seconds}, {"stages", stages}};
}

std::string text_of(const DispatchBench::Side& side) {
  std::string stages;
  for (const DispatchBench::Stage& stage : side.stages) {
    stages +=
        fmt::format("{}{} {:.3f}", stages.empty() ? "" : ", ", stage.name, 1e3 * stage.seconds);
  }
  return fmt::format("{:.3f} ms ({})", 1e3 * median(side.seconds), stages);
}

void print(const DispatchBench& b, const RankProcess& process, int ranks,
           const DispatchWish& wish) {
  const DispatchBenchOptions& o = wish.options;
  const std::string type = wish.bf16 ? "bf16" : "fp32";
  if (wish.json) {
    nlohmann::ordered_json ratio;
    for (const auto& [name, value] : ratio_fields(b.ratio)) ratio[name] = value;
    const nlohmann::ordered_json document = {{"ranks", ranks},
                                             {"threads", process.context().threads},
                                             {"type", type},
                                             {"rows", o.rows},
                                             {"width", o.width},
                                             {"experts", o.experts},
                                             {"top_k", o.top_k},
                                             {"bytes_out", b.bytes_out},
                                             {"bytes_home", b.bytes_home},
                                             {"dispatch", json_of(b.dispatch)},
                                             {"plain", json_of(b.plain)},
                                             {"time_ratio", ratio}};
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format(
      "{} of {}, {}; of each {} of {} to {} of {} experts: {} there, {} home\n"
      "dispatch and combine   {}\n"
      "all-to-all and copies  {}\n"
      "time ratio             {}\n",
      counted(ranks, "rank"), counted(process.context().threads, "thread"), type,
      counted(o.rows, "row"), o.width, o.top_k, o.experts,
      bytes_text(static_cast<double>(b.bytes_out)), bytes_text(static_cast<double>(b.bytes_home)),
      text_of(b.dispatch), text_of(b.plain), ratio_text(b.ratio));
}

int run(DispatchWish wish, RankProcess& process) {
  DispatchBenchOptions& o = wish.options;
  const int ranks = process.world().size();
  if (ranks < 2) throw usage_error("one rank has no other to send rows to: start it by mpirun");
  if (o.top_k > o.experts) {
    throw usage_error("--top-k ", o.top_k, " is more than --experts ", o.experts);
  }
  if (o.experts < ranks) {
    throw usage_error("--experts ", o.experts, " is less than one for each of ",
                      counted(ranks, "rank"));
  }
  o.type = wish.bf16 ? DType::kBF16 : DType::kF32;
  std::optional<Progress> progress;
  if (process.first()) {
    progress.emplace("bench dispatch", static_cast<double>(o.pairs), Progress::Unit::kCount);
    o.on_pair = [&](int64_t pairs) { progress->update(static_cast<double>(pairs)); };
  }
  const DispatchBench result = bench_dispatch(process.world(), process.context(), o);
  progress.reset();
  if (process.first()) print(result, process, ranks, wish);
  return 0;
}

}  // namespace

void add_bench_dispatch(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand(
      "dispatch", "rows to experts on other ranks and home; run it under mpirun");
  auto wish = std::make_shared<DispatchWish>();
  DispatchBenchOptions& o = wish->options;
  add_whole(*verb, "--rows", o.rows, {1, 1 << 24}, "of each rank");
  add_whole(*verb, "--width", o.width, {1, 1 << 20}, "of a row");
  add_whole(*verb, "--experts", o.experts, {2, 1 << 16}, "over all ranks");
  add_whole(*verb, "--top-k", o.top_k, {1, 1 << 16}, "experts of a row");
  add_whole(*verb, "--pairs", o.pairs, {1, 100000}, "of both sides");
  verb->add_flag("--bf16", wish->bf16, "bf16 instead of fp32");
  verb->add_flag("--json", wish->json, "machine-readable");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
