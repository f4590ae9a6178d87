#include <algorithm>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/progress.h"
#include "runtime/bench/step_bench.h"
#include "runtime/bench/timing.h"
#include "runtime/config/number.h"
#include "runtime/memory_need.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

struct StepWish {
  BenchModel model;
  int64_t warmup = 2, steps = 5;
};

std::string products_text(const StepBench& b, double step) {
  if (!b.products_known) return "";
  return fmt::format(
      "products alone  {:.3f} s, {:.1f}% of the step: linear layers and head {:.1f}%, attention's "
      "{:.1f}%\n"
      "attention alone {:.3f} s as a whole, {:.1f}% of the step\n",
      b.product_seconds(), 100 * b.product_seconds() / step, 100 * b.linear_product_seconds / step,
      100 * b.attention_product_seconds / step, b.attention_seconds,
      100 * b.attention_seconds / step);
}

void print(const StepBench& b, const RankProcess& process, int ranks, bool json) {
  const double step = median(b.seconds);
  const auto tokens = static_cast<double>(b.tokens_per_step);
  if (json) {
    nlohmann::ordered_json document = {
        {"ranks", ranks},
        {"threads", process.context().threads},
        {"parameters", b.parameters},
        {"tokens_per_step", b.tokens_per_step},
        {"step_seconds", step},
        {"step_seconds_min", *std::min_element(b.seconds.begin(), b.seconds.end())},
        {"step_seconds_max", *std::max_element(b.seconds.begin(), b.seconds.end())},
        {"tokens_per_second", tokens / step},
        {"flop_per_second", b.flops_per_step / step},
        {"communication_wait_seconds", b.comm_wait_seconds},
        {"reduction_hidden", b.hidden},
        {"pool_peak_bytes", b.pool_peak_bytes},
        {"resident_peak_bytes", b.resident_peak_bytes}};
    if (b.products_known) {
      document["product_seconds"] = b.product_seconds();
      document["linear_product_seconds"] = b.linear_product_seconds;
      document["attention_product_seconds"] = b.attention_product_seconds;
      document["attention_seconds"] = b.attention_seconds;
      document["product_share"] = b.product_seconds() / step;
    }
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format(
      "{}, {} a step, {} of {}\n"
      "step            {:.3f} s (median of {}; {:.3f} to {:.3f})\n"
      "throughput      {:.0f} tokens/s, {:.1f} GFLOP/s\n"
      "{}"
      "communication   {:.3f} s waited, {:.0f}% of the reduction hidden\n"
      "peak memory     {} of tensors, {} resident\n",
      counted(b.parameters, "parameter"), counted(b.tokens_per_step, "token"),
      counted(ranks, "rank"), counted(process.context().threads, "thread"), step, b.seconds.size(),
      *std::min_element(b.seconds.begin(), b.seconds.end()),
      *std::max_element(b.seconds.begin(), b.seconds.end()), tokens / step,
      b.flops_per_step / step / 1e9, products_text(b, step), b.comm_wait_seconds, 100 * b.hidden,
      bytes_text(static_cast<double>(b.pool_peak_bytes)),
      bytes_text(static_cast<double>(b.resident_peak_bytes)));
}

int run(const StepWish& wish, RankProcess& process) {
  const Config config = bench_config(wish.model, process);
  MemoryNeed need = training_memory(*make_model(config, wish.model.vocabulary),
                                    process.world().size(), config.optim.matrix);
  need.save = 0;  // nothing is saved
  require_memory(need, process.topology().local_size);
  const StepBench result = bench_step(config, wish.model.vocabulary, wish.warmup, wish.steps,
                                      process.world(), process.context());
  if (process.first()) print(result, process, process.world().size(), wish.model.json);
  return 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand("step", "a whole training step on random tokens");
  auto wish = std::make_shared<StepWish>();
  add_bench_options(*verb, wish->model, true);
  add_whole(*verb, "--warmup", wish->warmup, {0, 1000}, "steps before");
  add_whole(*verb, "--steps", wish->steps, {1, 100000}, "measured steps");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
