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
#include "runtime/bench/step_pair.h"
#include "runtime/bench/timing.h"
#include "runtime/config/number.h"
#include "runtime/memory_need.h"
#include "runtime/rank_plan.h"
#include "runtime/train_step.h"

namespace anabranch {
namespace {

struct StepWish {
  BenchModel model;
  int64_t warmup = 2, steps = 5;
  int64_t pairs = 20;
};

std::string products_text(const StepBench& b, double step) {
  if (b.product_seconds() == 0) return {};  // not taken alone
  return fmt::format(
      "products alone  {:.3f} s, {:.1f}% of the step: linear maps and head {:.1f}%, attention's "
      "{:.1f}%\n"
      "attention alone {:.3f} s as a whole, {:.1f}% of the step\n",
      b.product_seconds(), 100 * b.product_seconds() / step, 100 * b.linear_product_seconds / step,
      100 * b.attention_product_seconds / step, b.attention_seconds,
      100 * b.attention_seconds / step);
}

// What the optimizer takes, and how fast its products are if it has some.
std::string update_text(const StepBench& b, double step) {
  const MatrixRate& m = b.matrices;
  const std::string share = fmt::format("optimizer       {:.3f} s, {:.1f}% of the step",
                                        b.update_seconds, 100 * b.update_seconds / step);
  if (m.flops == 0) return share + "\n";
  return share + fmt::format(
                     "; its matrix products {:.1f} GFLOP/s, {:.1f}% of the {:.1f} of the products "
                     "alone\n",
                     m.flops / m.seconds * 1e-9, 100 * m.of_bare(),
                     m.flops / m.bare_seconds * 1e-9);
}

std::string gpu_text(const StepBench& b, Device device) {
  if (device.is_cpu()) return {};
  return fmt::format("host            waited {} for its GPU in the last step\n",
                     counted(b.gpu_waits, "time"));
}

void print(const StepBench& b, const RankProcess& process, int ranks, bool json) {
  const double step = median(b.seconds);
  const auto tokens = static_cast<double>(b.tokens_per_step);
  if (json) {
    nlohmann::ordered_json document = {
        {"ranks", ranks},
        {"threads", process.context().threads},
        {"device", process.context().device.is_cpu() ? "cpu" : process.devices().of_rank.front()},
        {"parameters", b.parameters},
        {"tokens_per_step", b.tokens_per_step},
        {"step_seconds", step},
        {"step_seconds_min", *std::min_element(b.seconds.begin(), b.seconds.end())},
        {"step_seconds_max", *std::max_element(b.seconds.begin(), b.seconds.end())},
        {"tokens_per_second", tokens / step},
        {"flop_per_second", b.flops_per_step / step},
        {"optimizer_seconds", b.update_seconds},
        {"optimizer_share", b.update_seconds / step},
        {"communication_wait_seconds", b.comm_wait_seconds},
        {"reduction_hidden", b.hidden},
        {"product_seconds", b.product_seconds()},
        {"linear_product_seconds", b.linear_product_seconds},
        {"attention_product_seconds", b.attention_product_seconds},
        {"attention_seconds", b.attention_seconds},
        {"product_share", b.product_seconds() / step},
        {"gpu_waits", b.gpu_waits},
        {"pool_peak_bytes", b.pool_peak_bytes},
        {"resident_peak_bytes", b.resident_peak_bytes}};
    if (b.matrices.flops > 0) {
      document["matrix_optimizer"] = {
          {"flop_per_second", b.matrices.flops / b.matrices.seconds},
          {"bare_flop_per_second", b.matrices.flops / b.matrices.bare_seconds},
          {"of_bare", b.matrices.of_bare()},
          {"seconds", b.matrices.seconds}};
    }
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format(
      "{}, {} a step, {} of {}, on {}\n"
      "step            {:.3f} s (median of {}; {:.3f} to {:.3f})\n"
      "throughput      {:.0f} tokens/s, {:.1f} GFLOP/s\n"
      "{}{}"
      "communication   {:.3f} s waited, {:.0f}% of the reduction hidden\n"
      "{}"
      "peak memory     {} of tensors, {} resident\n",
      counted(b.parameters, "parameter"), counted(b.tokens_per_step, "token"),
      counted(ranks, "rank"), counted(process.context().threads, "thread"),
      process.devices().hardware(), step, b.seconds.size(),
      *std::min_element(b.seconds.begin(), b.seconds.end()),
      *std::max_element(b.seconds.begin(), b.seconds.end()), tokens / step,
      b.flops_per_step / step / 1e9, products_text(b, step), update_text(b, step),
      b.comm_wait_seconds, 100 * b.hidden, gpu_text(b, process.context().device),
      bytes_text(static_cast<double>(b.pool_peak_bytes)),
      bytes_text(static_cast<double>(b.resident_peak_bytes)));
}

nlohmann::ordered_json json_of(const StepPair::Side& side) {
  return {{"step_seconds", median(side.seconds)},     {"all_seconds", side.seconds},
          {"optimizer_seconds", side.update_seconds}, {"parameters", side.parameters},
          {"tokens_per_step", side.tokens_per_step},  {"macs_per_token", side.macs_per_token}};
}

std::string side_text(const StepPair::Side& side) {
  return fmt::format(
      "{:.4f} s a step (median; optimizer {:.4f}), {}, {:.4g} multiply-adds a token\n",
      median(side.seconds), side.update_seconds, counted(side.parameters, "parameter"),
      side.macs_per_token);
}

void print(const StepPair& pair, const StepWish& wish, const RankProcess& process) {
  const PairedRatio& r = pair.ratio;
  std::string changes;
  for (const std::string& change : wish.model.against)
    changes += (changes.empty() ? "" : " ") + change;
  if (wish.model.json) {
    nlohmann::ordered_json ratio;
    for (const auto& [name, value] : ratio_fields(r)) ratio[name] = value;
    const nlohmann::ordered_json document = {{"device", process.devices().hardware()},
                                             {"pairs", r.pairs},
                                             {"changes", wish.model.against},
                                             {"first", json_of(pair.first)},
                                             {"second", json_of(pair.second)},
                                             {"time_ratio", ratio},
                                             {"macs_ratio", pair.macs_ratio()},
                                             {"pool_peak_bytes", pair.pool_peak_bytes},
                                             {"resident_peak_bytes", pair.resident_peak_bytes}};
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format(
      "on              {}\n"
      "as configured   {}"
      "against         {}"
      "                {}\n"
      "time ratio      {}\n"
      "multiply-adds   {:.4f} of the other's; time ratio over it {:.4f}\n"
      "peak memory     {} of tensors, {} resident, of both\n",
      process.devices().hardware(), side_text(pair.first), side_text(pair.second), changes,
      ratio_text(r), pair.macs_ratio(), r.median / pair.macs_ratio(),
      bytes_text(static_cast<double>(pair.pool_peak_bytes)),
      bytes_text(static_cast<double>(pair.resident_peak_bytes)));
}

MemoryNeed need_without_saves(const Config& config, const StepWish& wish, RankProcess& process) {
  MemoryNeed need =
      need_of(config, wish.model.vocabulary)(shape_of(config, process.world().size()));
  need.save = 0;  // nothing is saved
  return need;
}

int run_pair(const StepWish& wish, const Config& config, RankProcess& process) {
  const Config other = bench_against(wish.model);
  MemoryNeed need = need_without_saves(config, wish, process);
  const MemoryNeed more = need_without_saves(other, wish, process);
  need += more;
  process.require(need);
  const StepPair pair = bench_step_pair(config, other, wish.model.vocabulary, wish.pairs,
                                        process.world(), process.context());
  if (process.first()) print(pair, wish, process);
  return 0;
}

int run(const StepWish& wish, RankProcess& process) {
  const Config config = bench_config(wish.model, process);
  if (!wish.model.against.empty()) return run_pair(wish, config, process);
  process.require(need_without_saves(config, wish, process));
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
  CLI::Option* against = add_against_option(*verb, wish->model);
  add_whole(*verb, "--warmup", wish->warmup, {0, 1000}, "steps before")->excludes(against);
  add_whole(*verb, "--steps", wish->steps, {1, 100000}, "measured steps")->excludes(against);
  add_whole(*verb, "--pairs", wish->pairs, {1, 100000}, "steps of each, with --against")
      ->needs(against);
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
