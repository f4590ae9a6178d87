#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
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

// What is told of one model.
struct Speeds {
  double prefill = 0, decode = 0;  // median seconds
  double read = 0, written = 0;    // tokens a second

  Speeds(const GenerateBench& b, const GenerateBenchOptions& o)
      : prefill(median(b.prefill_seconds)),
        decode(median(b.decode_seconds)),
        read(static_cast<double>(o.batch * o.prompt_tokens) / prefill),
        written(static_cast<double>(o.batch * (o.tokens - 1)) / decode) {}
};

// How many times the second's throughput the first has.
struct Gains {
  PairedRatio prefill, decode;

  Gains(const GenerateBench& first, const GenerateBench& second)
      : prefill(paired_ratio(second.prefill_seconds, first.prefill_seconds)),
        decode(paired_ratio(second.decode_seconds, first.decode_seconds)) {}
};

nlohmann::ordered_json json_of(const PairedRatio& ratio) {
  nlohmann::ordered_json json;
  for (const auto& [name, value] : ratio_fields(ratio)) json[name] = value;
  return json;
}

nlohmann::ordered_json json_of(const GenerateBench& b, const GenerateWish& wish) {
  const GenerateBenchOptions& o = wish.options;
  const Speeds speeds(b, o);
  return {{"parameters", b.parameters},        {"batch", o.batch},
          {"prompt_tokens", o.prompt_tokens},  {"tokens", o.tokens},
          {"prefill_seconds", speeds.prefill}, {"prefill_tokens_per_second", speeds.read},
          {"decode_seconds", speeds.decode},   {"decode_tokens_per_second", speeds.written},
          {"gpu_waits", b.gpu_waits},          {"pool_peak_bytes", b.pool_peak_bytes}};
}

std::string speeds_text(const GenerateBench& b, const GenerateBenchOptions& o) {
  const Speeds speeds(b, o);
  return fmt::format(
      "prefill      {:.1f} tokens/s ({:.3f} s)\n"
      "decode       {:.1f} tokens/s over all prompts, {:.1f} each\n",
      speeds.read, speeds.prefill, speeds.written, speeds.written / static_cast<double>(o.batch));
}

void print(const std::vector<GenerateBench>& all, const GenerateWish& wish,
           const RankProcess& process) {
  const int threads = process.context().threads;
  const GenerateBench& b = all.front();
  const GenerateBenchOptions& o = wish.options;
  const bool pair = all.size() > 1;
  if (wish.model.json) {
    nlohmann::ordered_json document = {{"threads", threads},
                                       {"device", process.devices().hardware()}};
    document.update(json_of(b, wish));
    if (pair) {
      const Gains gains(b, all[1]);
      document["against"] = json_of(all[1], wish);
      document["prefill_throughput_ratio"] = json_of(gains.prefill);
      document["decode_throughput_ratio"] = json_of(gains.decode);
    }
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::string text = fmt::format("{}, {}, {} of {}, {} each\n", counted(b.parameters, "parameter"),
                                 counted(threads, "thread"), counted(o.batch, "prompt"),
                                 counted(o.prompt_tokens, "token"), counted(o.tokens, "new token"));
  text += speeds_text(b, o);
  if (pair) {
    const Gains gains(b, all[1]);
    text += fmt::format("against {} ({}):\n{}", fmt::join(wish.model.against, ", "),
                        counted(all[1].parameters, "parameter"), speeds_text(all[1], o));
    text += fmt::format("throughput over that one's:\nprefill      {}\ndecode       {}\n",
                        ratio_text(gains.prefill), ratio_text(gains.decode));
  }
  if (process.context().device.is_cuda()) {
    text += fmt::format("host         waited {} for its GPU in the last round\n",
                        counted(b.gpu_waits, "time"));
  }
  std::cout << text << "peak memory  " << bytes_text(static_cast<double>(b.pool_peak_bytes))
            << " of tensors\n";
}

int run(GenerateWish wish, RankProcess& process) {
  const Config config = bench_config(wish.model, process, false);
  wish.options.vocabulary = wish.model.vocabulary;
  const auto weights = [&](const Config& of) {
    return weights_memory(*make_model(of, wish.model.vocabulary), process.context().device);
  };
  MemoryNeed need = weights(config);
  std::vector<GenerateBench> all;
  const auto& pool = process.context().pool;
  if (wish.model.against.empty()) {
    process.require(need);
    all = {bench_generate(config, wish.options, pool)};
  } else {
    const Config against = bench_against(wish.model);
    need += weights(against);
    process.require(need);
    for (GenerateBench& b : bench_generate(config, against, wish.options, pool)) {
      all.push_back(std::move(b));
    }
  }
  if (process.first()) print(all, wish, process);
  return 0;
}

}  // namespace

void add_bench_generate(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand("generate", "sampling from a model of random weights");
  auto wish = std::make_shared<GenerateWish>();
  GenerateBenchOptions& o = wish->options;
  const Whole count{1, 1 << 20};
  add_bench_options(*verb, wish->model, true);
  add_against_option(*verb, wish->model);
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
