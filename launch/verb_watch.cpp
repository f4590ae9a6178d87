#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "launch/live_screen.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/rank_process.h"
#include "launch/run_lines.h"
#include "launch/run_view.h"
#include "launch/sweep_board.h"
#include "launch/sweep_table.h"
#include "launch/watch_sweep.h"
#include "runtime/config/config.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/metrics_reader.h"
#include "runtime/sweep/run_state.h"

namespace anabranch {

namespace {

struct WatchOptions {
  std::string run;  // or a sweep
  bool once = false;
  bool json = false;
  double every = 1;
  SweepScale scale = SweepScale::kFull;
};

// The lines of a run on the standard output, as `train` shows them where there is no terminal.
class Lines final : public ReportSink {
 public:
  void step(const StepReport& r) override {
    if (!r.skipped.empty()) print(skipped_line(r));
    seconds_.add(r.seconds);
    print(step_line(r, seconds_.of(std::max<int64_t>(r.total_steps - r.step, 0))));
  }

  void eval(const EvalReport& r) override { print(eval_line(r)); }

  void save(const SaveReport& r) override { print(save_line(r)); }

  void event(const std::string& kind, const std::string& text) override {
    print(event_line(kind, text));
  }

 private:
  static void print(const std::string& line) { std::cout << line << "\n"; }

  StepSeconds seconds_;
};

// Follows one file.
class Watcher {
 public:
  // `sink` hears of the lines, unless they are printed as they are.
  Watcher(const WatchOptions& options, int64_t total_steps, ReportSink& sink)
      : path_(options.run + "/metrics.jsonl"),
        json_(options.json),
        total_steps_(total_steps),
        sink_(sink) {}

  // Begins with the last `count` whole lines.
  void skip_to_last(size_t count);
  // Tells what has come since.
  void look();

  // Lines so far that no run writes, the last one of them.
  [[nodiscard]] std::string oddity() const;

 private:
  void show(const std::string& line);

  std::string path_;
  bool json_;
  int64_t total_steps_;
  std::streamoff at_ = 0;  // where the next line begins
  ReportSink& sink_;
  int64_t odd_ = 0;  // lines that no run writes
  std::string last_odd_;
};

void Watcher::skip_to_last(size_t count) {
  std::ifstream in(path_, std::ios::binary);
  std::vector<std::streamoff> begins{0};
  for (std::string line; std::getline(in, line);) {
    if (!in.eof()) begins.push_back(in.tellg());
  }
  at_ = begins.size() > count ? begins[begins.size() - 1 - count] : 0;
}

void Watcher::show(const std::string& line) {
  if (json_) {
    std::cout << line << "\n";
  } else if (!read_report(line, total_steps_, sink_)) {
    ++odd_;
    last_odd_ = line;
  }
}

void Watcher::look() {
  // A run that starts over may have cut the file.
  if (static_cast<std::streamoff>(std::filesystem::file_size(path_)) < at_) at_ = 0;
  std::ifstream in(path_, std::ios::binary);
  in.seekg(at_);
  for (std::string line; std::getline(in, line) && !in.eof();) {
    show(line);
    at_ += static_cast<std::streamoff>(line.size()) + 1;
  }
}

std::string Watcher::oddity() const {
  if (odd_ == 0) return "";
  return join(path_, ": skipped ", counted(odd_, "line"), " that no run writes, the last one ",
              quote(last_odd_));
}

// The steps of the run, or 0 if its configuration does not tell.
int64_t steps_of(const std::string& run) {
  try {
    return planned_steps(run + "/config.yaml");
  } catch (const Error&) {
    return 0;
  }
}

// Lines on the standard output.
void watch_lines(const WatchOptions& options) {
  Lines lines;
  Watcher watcher(options, steps_of(options.run), lines);
  if (!options.json) watcher.skip_to_last(20);
  std::string oddity;
  while (true) {
    watcher.look();
    std::cout << std::flush;
    if (watcher.oddity() != oddity) {
      oddity = watcher.oddity();
      std::cerr << "anabranch: warning: " << oddity << "\n";
    }
    if (options.once) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.every));
  }
}

// The whole terminal, until INT or TERM.
void watch_page(const WatchOptions& options) {
  RunView view;
  Watcher watcher(options, steps_of(options.run), view);
  LiveScreen screen;
  while (true) {
    watcher.look();
    const RunState state = run_state(options.run);
    const std::string why = state.why.empty() ? "" : ": " + state.why;
    std::string page =
        view.text(join(options.run, ": ", word_of(state.phase), why), screen.width());
    if (!watcher.oddity().empty()) page += watcher.oddity() + "\n";
    screen.show(page);
    const int signal = next_signal(options.every);
    if (signal != 0 && signal != SIGCHLD) return;
  }
}

void watch_a_sweep(const WatchOptions& options) {
  SweepBoard board(sweep_directory_of(options.run, options.scale));
  if (!options.once && !options.json) {
    watch_sweep(board, options.every);
    return;
  }
  board.look();
  std::cout << (options.json ? sweep_json(board) : sweep_table(board));
}

void watch(const WatchOptions& options) {
  const bool is_file = std::filesystem::is_regular_file(options.run);
  if (is_file || std::filesystem::exists(options.run + "/sweep.json")) {
    watch_a_sweep(options);
    return;
  }
  const std::string path = options.run + "/metrics.jsonl";
  if (!std::filesystem::exists(path)) {
    throw data_error(path, ": no such file; expected a run directory with metrics, or a sweep");
  }
  if (LiveScreen::possible() && !options.once && !options.json) {
    watch_page(options);
  } else {
    watch_lines(options);
  }
}

}  // namespace

void add_watch(CLI::App& app) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* verb = app.add_subcommand("watch", "follows a run or a sweep until interrupted");
  verb->add_option("RUN", options->run, "run directory, sweep file, or a sweep's directory")
      ->required();
  verb->add_flag("--once", options->once, "print what is there and end");
  verb->add_flag("--json", options->json,
                 "all lines as they are in metrics.jsonl; of a sweep what status prints");
  add_word(*verb, "--scale", options->scale,
           {{"full", SweepScale::kFull}, {"tiny", SweepScale::kTiny}},
           "of a sweep, as it was given to run; for a file");
  add_real(*verb, "--every", options->every, {0.05, 3600}, "seconds between two looks");
  verb->callback([options] { run_alone([&] { watch(*options); }); });
}

}  // namespace anabranch
