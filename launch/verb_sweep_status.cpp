#include <csignal>
#include <iostream>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "launch/options.h"
#include "launch/rank_process.h"
#include "launch/sweep_board.h"
#include "launch/sweep_table.h"
#include "launch/sweep_verbs.h"
#include "launch/watch_sweep.h"

namespace anabranch {

namespace {

struct StatusWish {
  std::string sweep;
  SweepScale scale = SweepScale::kFull;
  bool json = false, watch = false;
  double every = 2;
};

void status(const StatusWish& wish) {
  if (wish.json && wish.watch) throw usage_error("--json and --watch exclude each other");
  SweepBoard board(sweep_directory_of(wish.sweep, wish.scale));
  if (wish.watch) {
    watch_sweep(board, wish.every);
    return;
  }
  board.look();
  std::cout << (wish.json ? sweep_json(board) : sweep_table(board));
}

}  // namespace

void add_sweep_status(CLI::App& verb) {
  auto wish = std::make_shared<StatusWish>();
  CLI::App* sub = verb.add_subcommand("status", "the state of each run of a sweep");
  sub->add_option("SWEEP", wish->sweep, "sweep file, or a sweep's directory")->required();
  add_word(*sub, "--scale", wish->scale, {{"full", SweepScale::kFull}, {"tiny", SweepScale::kTiny}},
           "of the sweep, as it was given to run; for a file");
  sub->add_flag("--watch", wish->watch, "again and again, until interrupted");
  add_real(*sub, "--every", wish->every, {0.05, 3600}, "seconds between two looks");
  sub->add_flag("--json", wish->json, "machine-readable");
  sub->callback([wish] { run_alone([&] { status(*wish); }); });
}

}  // namespace anabranch
