#include <filesystem>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/progress.h"
#include "runtime/bench/comm_bench.h"
#include "runtime/config/number.h"
#include "runtime/planner/fit.h"

namespace anabranch {
namespace {

struct CommWish {
  std::string fit;  // file to write a machine to; empty: none
  CommBenchOptions options;
  OverlapOptions overlap_options;
  bool bf16 = false, overlap = false, json = false;
};

void print(const std::vector<CommTiming>& timings, int ranks, const CommWish& wish) {
  const std::string type = wish.bf16 ? "bf16" : "fp32";
  if (wish.json) {
    nlohmann::ordered_json document = {{"ranks", ranks}, {"type", type}, {"collectives", {}}};
    for (const CommTiming& t : timings) {
      document["collectives"].push_back({{"op", name_of(t.kind)},
                                         {"bytes", t.bytes},
                                         {"seconds", t.seconds},
                                         {"algorithm_bandwidth", t.algorithm_bandwidth()},
                                         {"bus_bandwidth", t.bus_bandwidth(ranks)}});
    }
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format("{}, {}\n{:<20}{:>12}{:>12}{:>11}{:>11}\n", counted(ranks, "rank"), type,
                           "collective", "bytes", "us", "alg GB/s", "bus GB/s");
  for (const CommTiming& t : timings) {
    std::cout << fmt::format("{:<20}{:>12}{:>12.1f}{:>11.3f}{:>11.3f}\n", name_of(t.kind), t.bytes,
                             t.seconds * 1e6, t.algorithm_bandwidth() * 1e-9,
                             t.bus_bandwidth(ranks) * 1e-9);
  }
}

void print(const OverlapBench& b, int ranks, const CommWish& wish) {
  const std::string type = wish.bf16 ? "bf16" : "fp32";
  if (wish.json) {
    const nlohmann::ordered_json document = {{"ranks", ranks},
                                             {"type", type},
                                             {"step_seconds", b.step_seconds},
                                             {"communication_seconds", b.communication_seconds},
                                             {"waited_seconds", b.waited_seconds},
                                             {"hidden", b.hidden()}};
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format(
      "{}, {} on the wire: step {:.3f} s, communication {:.3f} s, waited for {:.3f} s, "
      "{:.1f}% hidden\n",
      counted(ranks, "rank"), type, b.step_seconds, b.communication_seconds, b.waited_seconds,
      100 * b.hidden());
}

int fit(const CommWish& wish, RankProcess& process) {
  const std::string name = std::filesystem::path(wish.fit).stem().string();
  const Machine machine =
      fit_machine(name, process.world(), process.topology(), process.context(), wish.options);
  if (!process.first()) return 0;
  const std::string text = dump_machine(machine);
  write_atomically(wish.fit, text);
  std::cout << text;
  return 0;
}

int run(CommWish wish, RankProcess& process) {
  if (wish.options.max_bytes < wish.options.min_bytes) {
    throw usage_error("--max-bytes ", wish.options.max_bytes, " is less than --min-bytes ",
                      wish.options.min_bytes);
  }
  const int ranks = process.world().size();
  if (wish.overlap) {
    wish.overlap_options.bf16 = wish.bf16;
    const OverlapBench result = bench_overlap(process.world(), wish.overlap_options);
    if (process.first()) print(result, ranks, wish);
    return 0;
  }
  wish.options.type = wish.bf16 ? DType::kBF16 : DType::kF32;
  if (!wish.fit.empty()) return fit(wish, process);
  const std::vector<CommTiming> timings = bench_collectives(process.world(), wish.options);
  if (process.first()) print(timings, ranks, wish);
  return 0;
}

constexpr const char* kGroup = "With --overlap";

void add_overlap_options(CLI::App& verb, CommWish& wish) {
  OverlapOptions& o = wish.overlap_options;
  const auto add = [&](const char* name, double& value, const char* help) {
    add_real(verb, name, value, {1e-6, 1e6}, help)->group(kGroup);
  };
  verb.add_flag("--overlap", wish.overlap,
                "how much of a gradient reduction hides behind a backward of set length");
  add_whole(verb, "--layers", o.layers, {1, 4096}, "of the model")->group(kGroup);
  add("--layer-mb", o.layer_mb, "MB of fp32 gradient of a layer");
  add("--embedding-mb", o.embedding_mb, "MB of the tied embedding's, ready last");
  add("--bucket-mb", o.bucket_mb, "MiB of gradient reduced at a time");
  add("--backward-ms", o.backward_ms, "length of the backward");
  add_whole(verb, "--steps", o.steps, {1, 1000}, "measured steps")->group(kGroup);
}

}  // namespace

void add_bench_comm(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand("comm", "collectives by size; run it under mpirun");
  auto wish = std::make_shared<CommWish>();
  CommBenchOptions& o = wish->options;
  const Whole bytes{1, int64_t{1} << 36};
  add_whole(*verb, "--min-bytes", o.min_bytes, bytes, "smallest size");
  add_whole(*verb, "--max-bytes", o.max_bytes, bytes, "greatest size");
  add_whole(*verb, "--factor", o.factor, {2, 1 << 20}, "from size to size");
  add_whole(*verb, "--repeats", o.repeats, {0, 1000000}, "of each; 0: 50 up to a MiB, 9 above");
  verb->add_flag("--bf16", wish->bf16, "bf16 instead of fp32");
  CLI::Option* fit = verb->add_option(
      "--fit", wish->fit,
      "file: measures this machine's products and memory too, and writes it as `plan` reads it");
  add_overlap_options(*verb, *wish);
  fit->excludes("--overlap");
  verb->add_flag("--json", wish->json, "machine-readable");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
