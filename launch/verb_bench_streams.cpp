#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/progress.h"
#include "parallel/stream_region.h"
#include "runtime/bench/stream_bench.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {

struct StreamWish {
  StreamBenchOptions options;
  bool slice = false, bf16 = false, json = false;
};

void print(const std::vector<ChunkTiming>& timings, int ranks, const StreamWish& wish) {
  const StreamBenchOptions& o = wish.options;
  const std::string type = wish.bf16 ? "bf16" : "fp32", layout = wish.slice ? "slice" : "gather";
  if (wish.json) {
    nlohmann::ordered_json document = {{"ranks", ranks},       {"type", type},
                                       {"layout", layout},     {"rows", o.rows},
                                       {"width", o.width},     {"hidden", o.hidden},
                                       {"streams", o.streams}, {"taken_rows", chunk_rows(o.rows)},
                                       {"chunkings", {}}};
    for (const ChunkTiming& t : timings) {
      document["chunkings"].push_back({{"chunks", t.chunks},
                                       {"rows", t.rows},
                                       {"seconds", t.seconds()},
                                       {"forward_seconds", t.forward},
                                       {"backward_seconds", t.backward},
                                       {"communication_seconds", t.communication},
                                       {"waited_seconds", t.waited}});
    }
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format(
      "{}, {}, layout {}; of each {} of {} through {} streams of {}\n"
      "{:>7}{:>8}{:>12}{:>13}{:>10}{:>18}{:>11}\n",
      counted(ranks, "rank"), type, layout, counted(o.rows, "row"), o.width, o.streams, o.hidden,
      "chunks", "rows", "forward ms", "backward ms", "both ms", "communication ms", "waited ms");
  for (const ChunkTiming& t : timings) {
    std::cout << fmt::format("{:>7}{:>8}{:>12.2f}{:>13.2f}{:>10.2f}{:>18.2f}{:>11.2f}{}\n",
                             t.chunks, t.rows, 1e3 * t.forward, 1e3 * t.backward, 1e3 * t.seconds(),
                             1e3 * t.communication, 1e3 * t.waited,
                             t.rows == chunk_rows(o.rows) ? "  as in training" : "");
  }
}

int run(StreamWish wish, RankProcess& process) {
  StreamBenchOptions& o = wish.options;
  const int ranks = process.world().size();
  if (ranks < 2) throw usage_error("one rank has no other to send rows to: start it by mpirun");
  if (o.streams < ranks) {
    throw usage_error("--streams ", o.streams, " is less than one for each of ",
                      counted(ranks, "rank"));
  }
  if (o.hidden == 0) o.hidden = 4 * o.width;
  if (o.hidden < ranks) {
    throw usage_error("--hidden ", o.hidden, " is less than one for each of ",
                      counted(ranks, "rank"));
  }
  o.layout = wish.slice ? StreamLayout::kSlice : StreamLayout::kGather;
  o.type = wish.bf16 ? DType::kBF16 : DType::kF32;
  std::optional<Progress> progress;
  if (process.first()) {
    progress.emplace("bench streams", static_cast<double>(o.rounds), Progress::Unit::kCount);
    o.on_round = [&](int64_t rounds) { progress->update(static_cast<double>(rounds)); };
  }
  const std::vector<ChunkTiming> timings = bench_streams(process.world(), process.context(), o);
  progress.reset();
  if (process.first()) print(timings, ranks, wish);
  return 0;
}

}  // namespace

void add_bench_streams(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand(
      "streams", "rows through streams on other ranks, by chunks; run it under mpirun");
  auto wish = std::make_shared<StreamWish>();
  StreamBenchOptions& o = wish->options;
  add_whole(*verb, "--rows", o.rows, {1, 1 << 24}, "of each rank");
  add_whole(*verb, "--width", o.width, {1, 1 << 20}, "of a row");
  add_whole(*verb, "--hidden", o.hidden, {0, 1 << 24}, "of a stream; 0: 4 times the width");
  add_whole(*verb, "--streams", o.streams, {2, 1024}, "over all ranks");
  add_whole(*verb, "--rounds", o.rounds, {1, 100000}, "of each number of chunks");
  verb->add_flag("--slice", wish->slice, "a slice of every stream on each rank, not whole ones");
  verb->add_flag("--bf16", wish->bf16, "bf16 instead of fp32");
  verb->add_flag("--json", wish->json, "machine-readable");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
