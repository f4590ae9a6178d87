// The verbs below `bench`, and what they share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/rank_process.h"
#include "runtime/bench/paired.h"
#include "runtime/config/config.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
class Option;
}  // namespace CLI

namespace anabranch {

// A model to measure, and how to print.
struct BenchModel {
  std::string config;  // empty: GPT-2's 12 layers, micro-batches of 4
  std::vector<std::string> sets;
  std::vector<std::string> against;  // keys of a second configuration beside these; empty: none
  int64_t vocabulary = 50257;
  bool json = false;
};

// Declares CONFIG, --set, --vocab and --json; CONFIG may be left out unless it is `required`.
void add_bench_options(CLI::App& verb, BenchModel& model, bool required);

// Reads the configuration. A bench needs no data and no number of steps: what it leaves open is
// filled in. Takes over its number of threads and its device, to train on or, if it does not
// `train`, only to run the model. Collective. Throws Error (config, 78).
Config bench_config(const BenchModel& model, RankProcess& process, bool train = true);

// Declares --against: keys of a second configuration, which takes turns with the first.
CLI::Option* add_against_option(CLI::App& verb, BenchModel& model);

// The configuration with the keys of --against over those of --set. Throws Error (config, 78);
// and (usage, 64) if it wants other threads or another device, which a process has once.
Config bench_against(const BenchModel& model);

// "1.034 (1.031 to 1.037 at 95.9%, 20 pairs)", and the same under names for --json.
std::string ratio_text(const PairedRatio& ratio);
std::vector<std::pair<std::string, double>> ratio_fields(const PairedRatio& ratio);

void add_bench_comm(CLI::App& bench, int& exit_code);
void add_bench_data(CLI::App& bench);
void add_bench_dispatch(CLI::App& bench, int& exit_code);
void add_bench_generate(CLI::App& bench, int& exit_code);
void add_bench_ops(CLI::App& bench, int& exit_code);
void add_bench_save(CLI::App& bench, int& exit_code);
void add_bench_step(CLI::App& bench, int& exit_code);
void add_bench_streams(CLI::App& bench, int& exit_code);

}  // namespace anabranch
