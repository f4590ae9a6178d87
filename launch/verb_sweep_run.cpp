#include <iostream>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "launch/local_sweep.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/rank_process.h"
#include "launch/slurm_arrays.h"
#include "launch/sweep_board.h"
#include "launch/sweep_table.h"
#include "launch/sweep_verbs.h"
#include "launch/watch_sweep.h"
#include "runtime/config/number.h"
#include "runtime/sweep/sweep_directory.h"

namespace anabranch {

namespace {

struct RunWish {
  std::string file;
  SweepOptions options;
  std::optional<int64_t> at_once, ranks;
  bool retry = false, slurm = false, follow = false, unchosen = false;
  double every = 1;
  std::vector<std::string> sbatch;
};

void check(const RunWish& wish) {
  if (!wish.slurm && wish.follow) throw usage_error("--follow belongs to --slurm: add it");
  if (!wish.slurm && !wish.sbatch.empty()) {
    throw usage_error("found ", wish.sbatch[0],
                      "; options of sbatch are for --slurm: add it, or leave them out");
  }
  if (wish.slurm && wish.ranks) {
    throw usage_error("-n is for this machine; to SLURM say -- --ntasks-per-node=", *wish.ranks);
  }
  for (const std::string& option : wish.sbatch) {
    if (option.starts_with("--array") || option.starts_with("-a") ||
        option.starts_with("--job-name") || option.starts_with("-J")) {
      throw usage_error(option, ": the sweep's array and its name follow from its runs; --at-once ",
                        "says how many run at a time");
    }
  }
}

// Submits what is to be submitted; the sweep's decisions are locked.
void submit(SweepBoard& board, const RunWish& wish) {
  board.look(true);
  SlurmWish array{.runs = {},
                  .options = wish.sbatch,
                  .at_once = wish.at_once.value_or(0),
                  .name = board.record().name};
  for (size_t r = 0; r < board.states().size(); ++r) {
    if (board.may_start(r, wish.retry)) array.runs.push_back(board.record().runs[r].id);
  }
  if (array.runs.empty()) {
    std::cout << "nothing to submit\n";
    return;
  }
  const std::string job = submit_array(board.directory(), array);
  std::cout << "submitted " << counted(std::ssize(array.runs), "run") << " as job " << job << "\n";
}

int first_failure(const SweepBoard& board) {
  for (const RunState& state : board.states()) {
    if (state.phase == RunPhase::kFailed) return state.exit_code;
  }
  return 0;
}

int run(const RunWish& wish) {
  check(wish);
  const Sweep sweep = expand_sweep(load_sweep(wish.file), wish.options);
  if (!sweep.unchosen.empty()) std::cerr << "anabranch: warning: " << sweep.unchosen << "\n";
  if (!wish.unchosen) require_chosen(sweep);
  const SweepDirectory directory = SweepDirectory::of(sweep.name);
  std::optional<FileLock> decisions = directory.lock_decisions();
  directory.submit(sweep, wish.options, build_lines());
  if (!wish.slurm) {
    decisions.reset();
    return run_sweep_here(directory, {.at_once = wish.at_once.value_or(1),
                                      .ranks = wish.ranks.value_or(1),
                                      .retry = wish.retry,
                                      .every = wish.every});
  }
  SweepBoard board(directory);
  submit(board, wish);
  decisions.reset();
  if (wish.follow) watch_sweep(board, wish.every, true);
  board.look(true);
  std::cout << sweep_table(board);
  return first_failure(board);
}

}  // namespace

void add_sweep_run(CLI::App& verb, int& exit_code) {
  auto wish = std::make_shared<RunWish>();
  CLI::App* sub = verb.add_subcommand(
      "run",
      "starts a sweep's runs on this machine, or submits them to SLURM; goes on where it was");
  add_sweep_options(*sub, wish->file, wish->options);
  add_whole(*sub, "--at-once", wish->at_once, {1, 1000}, "runs at a time (1; with --slurm: any)");
  add_whole(*sub, "-n", wish->ranks, {1, 4096}, "ranks of a run (1)");
  sub->add_flag("--retry", wish->retry, "failed runs too, and those stopped by hand");
  sub->add_flag("--unchosen", wish->unchosen, "start them though a pilot of `choose` is not done");
  sub->add_flag("--slurm", wish->slurm, "submit them as a job array");
  sub->add_flag("--follow", wish->follow,
                "with --slurm: stay until nothing is queued, and end runs by the sweep's rule");
  add_real(*sub, "--every", wish->every, {0.05, 3600}, "seconds between two looks");
  sub->add_option("SBATCH", wish->sbatch, "options of sbatch, behind --");
  sub->callback([wish, &exit_code] { run_alone([&] { exit_code = run(*wish); }); });
}

}  // namespace anabranch
