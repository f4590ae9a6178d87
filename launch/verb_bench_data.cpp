#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/read_file.h"
#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/progress.h"
#include "launch/rank_process.h"
#include "runtime/bench/data_bench.h"
#include "runtime/bench/timing.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {

struct DataWish {
  std::string text, tokenizer, data;
  int piece_kib = 64, threads = 1, rounds = 7;
  int64_t entries = 0, batches = 100;
  LoaderOptions loader;
  bool json = false;
};

nlohmann::ordered_json encode(const DataWish& wish, std::string& report) {
  const Stopwatch load;
  const Tokenizer tokenizer = Tokenizer::load(wish.tokenizer);
  const double load_seconds = load.seconds();
  const std::string text = read_file(wish.text);
  if (text.empty()) throw data_error(wish.text, " is empty; give text to encode");
  const EncodeBench b = bench_encode(tokenizer, text, static_cast<size_t>(wish.piece_kib) << 10U,
                                     wish.threads, wish.rounds);
  const double first = static_cast<double>(b.bytes) / 0x1p20 / b.seconds.front();
  report += fmt::format(
      "encode  {:.1f} MiB/s a thread (median of {}; {:.1f} in the first round), {}, {} in "
      "{}, {}; loaded in {:.0f} ms\n",
      b.mib_per_second(), b.seconds.size(), first, counted(b.threads, "thread"),
      bytes_text(static_cast<double>(b.bytes)), counted(static_cast<int64_t>(b.pieces), "piece"),
      counted(static_cast<int64_t>(b.tokens), "token"), 1e3 * load_seconds);
  return {{"bytes", b.bytes},
          {"tokens", b.tokens},
          {"pieces", b.pieces},
          {"threads", b.threads},
          {"seconds", median(b.seconds)},
          {"mib_per_second_per_thread", b.mib_per_second()},
          {"first_mib_per_second_per_thread", first},
          {"load_seconds", load_seconds}};
}

nlohmann::ordered_json vocabulary(const DataWish& wish, std::string& report) {
  const VocabularyBench b = bench_vocabulary(wish.text, static_cast<size_t>(wish.entries),
                                             static_cast<unsigned>(wish.threads));
  report += fmt::format("train   {:.2f} s for {} entries from {}, {}\n", b.seconds, b.entries,
                        bytes_text(static_cast<double>(b.bytes)), counted(b.threads, "thread"));
  return {
      {"bytes", b.bytes}, {"entries", b.entries}, {"threads", b.threads}, {"seconds", b.seconds}};
}

nlohmann::ordered_json loader(const DataWish& wish, std::string& report) {
  const LoaderBench b = bench_loader(wish.data, wish.loader, wish.batches, wish.rounds);
  const double seconds = median(b.seconds);
  const double rate = static_cast<double>(b.tokens_per_batch) / seconds;
  report += fmt::format(
      "loader  {:.1f} us a batch of {} (median of {} of {}), {:.0f} tokens/s; first "
      "batch after {:.1f} ms\n",
      1e6 * seconds, counted(b.tokens_per_batch, "token"), counted(std::ssize(b.seconds), "round"),
      wish.batches, rate, 1e3 * b.start_seconds);
  return {{"batches", wish.batches},
          {"tokens_per_batch", b.tokens_per_batch},
          {"batch_seconds", seconds},
          {"tokens_per_second", rate},
          {"start_seconds", b.start_seconds}};
}

void run(const DataWish& wish) {
  nlohmann::ordered_json document;
  std::string report;
  if (!wish.tokenizer.empty()) document["encode"] = encode(wish, report);
  if (wish.entries > 0) document["train"] = vocabulary(wish, report);
  if (!wish.data.empty()) document["loader"] = loader(wish, report);
  if (document.empty()) {
    throw usage_error(
        "nothing to measure: give --text and --tokenizer, --text and --train-vocab, or --data");
  }
  std::cout << (wish.json ? document.dump(2) + "\n" : report);
}

}  // namespace

void add_bench_data(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand("data", "tokenizer, its training, and the loader");
  auto wish = std::make_shared<DataWish>();
  wish->loader.T = 1024;
  wish->loader.micro_batch = 4;
  const Whole count{1, 1 << 20};
  CLI::Option* text = verb->add_option("--text", wish->text, "text file to encode or learn from");
  verb->add_option("--tokenizer", wish->tokenizer, "tokenizer.json to encode --text with")
      ->needs(text);
  add_whole(
      *verb, "--train-vocab", {258, 1 << 24}, "",
      [wish](int64_t entries) { wish->entries = entries; },
      "entries of a vocabulary to learn from --text")
      ->needs(text);
  add_whole(*verb, "--threads", wish->threads, {1, 1024}, "that encode or count");
  add_whole(*verb, "--piece-kib", wish->piece_kib, {0, 1 << 20},
            "text is encoded in pieces of this; 0: whole");
  add_whole(*verb, "--rounds", wish->rounds, count, "of encoding and of loading");
  CLI::Option* data = verb->add_option("--data", wish->data, "data set to load batches from");
  add_whole(*verb, "--context", wish->loader.T, count, "tokens of a sequence")->needs(data);
  add_whole(*verb, "--micro-batch", wish->loader.micro_batch, count, "sequences of a batch")
      ->needs(data);
  add_whole(*verb, "--batches", wish->batches, count, "of a round")->needs(data);
  verb->add_flag("--json", wish->json, "machine-readable");
  verb->callback([wish] { run_alone([&] { run(*wish); }); });
}

}  // namespace anabranch
