#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/progress.h"
#include "runtime/bench/generate_bench.h"
#include "runtime/bench/timing.h"
#include "runtime/config/number.h"
#include "runtime/memory_need.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

struct GenerateWish {
  BenchModel model;
  GenerateBenchOptions options;
};

void print(const GenerateBench& b, const GenerateWish& wish, int threads) {
  const GenerateBenchOptions& o = wish.options;
  const double prefill = median(b.prefill_seconds), decode = median(b.decode_seconds);
  const double read = static_cast<double>(o.batch * o.prompt_tokens) / prefill;
  const double written = static_cast<double>(o.batch * (o.tokens - 1)) / decode;
  if (wish.model.json) {
    const nlohmann::ordered_json document = {{"threads", threads},
                                             {"parameters", b.parameters},
                                             {"batch", o.batch},
                                             {"prompt_tokens", o.prompt_tokens},
                                             {"tokens", o.tokens},
                                             {"prefill_seconds", prefill},
                                             {"prefill_tokens_per_second", read},
                                             {"decode_seconds", decode},
                                             {"decode_tokens_per_second", written},
                                             {"pool_peak_bytes", b.pool_peak_bytes}};
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format(
      "{}, {}, {} of {}, {} each\n"
      "prefill      {:.1f} tokens/s ({:.3f} s)\n"
      "decode       {:.1f} tokens/s over all prompts, {:.1f} each\n"
      "peak memory  {} of tensors\n",
      counted(b.parameters, "parameter"), counted(threads, "thread"), counted(o.batch, "prompt"),
      counted(o.prompt_tokens, "token"), counted(o.tokens, "new token"), read, prefill, written,
      written / static_cast<double>(o.batch), bytes_text(static_cast<double>(b.pool_peak_bytes)));
}

int run(GenerateWish wish, RankProcess& process) {
  const Config config = bench_config(wish.model, process);
  wish.options.vocabulary = wish.model.vocabulary;
  require_memory(weights_memory(*make_model(config, wish.model.vocabulary)),
                 process.topology().local_size);
  const GenerateBench result = bench_generate(config, wish.options, process.context().pool);
  if (process.first()) print(result, wish, process.context().threads);
  return 0;
}

}  // namespace

void add_bench_generate(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand("generate", "sampling from a model of random weights");
  auto wish = std::make_shared<GenerateWish>();
  GenerateBenchOptions& o = wish->options;
  const Whole count{1, 1 << 20};
  add_bench_options(*verb, wish->model, true);
  add_whole(*verb, "--batch", o.batch, count, "prompts at a time");
  add_whole(*verb, "--prompt-tokens", o.prompt_tokens, count, "of each prompt");
  add_whole(*verb, "--tokens", o.tokens, {2, 1 << 20}, "new ones of each prompt");
  add_real(*verb, "--temperature", o.temperature, {}, "0: the most likely token");
  add_whole(*verb, "--rounds", o.rounds, {1, 1000}, "measured rounds");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
