// `anabranch export`: metrics of runs for other programs.
#include <filesystem>
#include <iostream>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/rank_process.h"
#include "runtime/config/number.h"
#include "runtime/interchange/series_csv.h"
#include "runtime/interchange/tensorboard.h"
#include "runtime/sweep/record.h"

namespace anabranch {

namespace {

namespace fs = std::filesystem;

struct ExportWish {
  std::string path, out, to;
  bool json = false;
};

struct Exported {
  std::string run, folder;
  int64_t steps = 0, evals = 0, odd_lines = 0;
};

Exported export_metrics(const fs::path& run, const fs::path& out, const std::string& to) {
  const RunSeries series = read_series((run / "metrics.jsonl").string());
  std::error_code failure;
  fs::create_directories(out, failure);
  if (failure) throw io_error("cannot make ", out.string(), ": ", failure.message());
  const auto write = [&out](std::string_view name, const std::string& text) {
    write_atomically((out / name).string(), text);
  };
  if (to == "tensorboard") {
    write(kEventFile, event_file(scalar_events(series)));
  } else {
    write("steps.csv", steps_csv(series));
    write("evals.csv", evals_csv(series));
    write("mixture.csv", mixture_csv(series));
  }
  return {run.string(), out.string(), std::ssize(series.steps), std::ssize(series.evals),
          series.odd_lines};
}

// Of a sweep each run that has begun goes to a folder of its name.
std::vector<Exported> export_all(const ExportWish& wish) {
  const fs::path path = wish.path;
  if (!fs::exists(path / "sweep.json")) return {export_metrics(path, wish.out, wish.to)};
  std::vector<Exported> all;
  int64_t absent = 0;
  for (const SweepRun& run : read_record(wish.path).runs) {
    if (fs::exists(path / run.id / "metrics.jsonl")) {
      all.push_back(export_metrics(path / run.id, fs::path(wish.out) / run.id, wish.to));
    } else {
      ++absent;
    }
  }
  if (all.empty()) throw data_error(wish.path, ": none of its runs has metrics yet");
  if (absent > 0) {
    std::cerr << "anabranch: warning: " << counted(absent, "run") << " without metrics left out\n";
  }
  return all;
}

void export_and_say(const ExportWish& wish) {
  const std::vector<Exported> all = export_all(wish);
  auto json = nlohmann::ordered_json::array();
  for (const Exported& one : all) {
    if (one.odd_lines > 0) {
      std::cerr << "anabranch: warning: " << one.run << ": skipped "
                << counted(one.odd_lines, "line") << " that no run writes\n";
    }
    json.push_back({{"run", one.run},
                    {"folder", one.folder},
                    {"steps", one.steps},
                    {"evals", one.evals},
                    {"odd_lines", one.odd_lines}});
    if (wish.json) continue;
    std::cout << one.folder << ": " << counted(one.steps, "step") << ", "
              << counted(one.evals, "evaluation") << "\n";
  }
  if (wish.json) std::cout << json.dump(2) << "\n";
}

}  // namespace

void add_export(CLI::App& app) {
  auto wish = std::make_shared<ExportWish>();
  wish->to = "csv";
  CLI::App* verb =
      app.add_subcommand("export", "hands a run's metrics on, as CSV or to TensorBoard");
  verb->add_option("PATH", wish->path, "run directory, or a sweep's")->required();
  add_word(*verb, "--to", wish->to, {"csv", "tensorboard"},
           "csv: steps.csv, evals.csv, mixture.csv; tensorboard: an event file");
  verb->add_option("--out", wish->out, "folder; of a sweep with one for each run")->required();
  verb->add_flag("--json", wish->json, "machine-readable");
  verb->callback([wish] { run_alone([&] { export_and_say(*wish); }); });
}

}  // namespace anabranch
