// `anabranch sweep report`: what the runs of a sweep came to.
#include <filesystem>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/rank_process.h"
#include "launch/sweep_verbs.h"
#include "runtime/report/report_files.h"
#include "runtime/report/write_report.h"
#include "runtime/sweep/sweep_directory.h"
#include "runtime/sweep/sweep_file.h"

namespace anabranch {

namespace {

struct ReportOptions {
  std::string path, out, baseline;
  ReportWish wish;
  SweepScale scale = SweepScale::kFull;
  bool figures = false, json = false;
};

// The directory of a sweep, by its file or itself.
std::string folder_of(const ReportOptions& options) {
  if (std::filesystem::is_directory(options.path)) return options.path;
  const std::string tiny = options.scale == SweepScale::kTiny ? "-tiny" : "";
  return SweepDirectory::of(load_sweep(options.path).name + tiny).path().string();
}

void report(const ReportOptions& options) {
  if (options.figures && options.out.empty()) {
    throw usage_error("--figures writes files: name their folder with --out");
  }
  const SweepReport report = make_report(folder_of(options), options.baseline);
  const std::vector<SizeSeries> series = size_series(report, options.wish.law);
  // Its names of axes are checked before anything is written.
  const std::string text = report_markdown(report, options.wish, series);
  if (!options.out.empty()) {
    write_report(report, options.wish, series, options.out, options.figures);
  }
  std::cout << (options.json ? report_json(report, series) : text);
}

}  // namespace

void add_sweep_report(CLI::App& sweep) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* sub = sweep.add_subcommand(
      "report", "tables of losses with their spread, differences, scaling laws, plots");
  sub->add_option("SWEEP", options->path, "sweep file, or its directory runs/NAME")->required();
  sub->add_option("--out", options->out, "folder for report.md, .csv, .json, .html");
  sub->add_flag("--figures", options->figures, "the papers' figures too, in the page and as SVG");
  sub->add_option("--baseline", options->baseline,
                  "a point, family or value that points are measured against; left out: dense, "
                  "base, and controls of equal multiply-adds");
  sub->add_option("--rows", options->wish.pivot.rows, "keys for the rows of tables: a,b")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--columns", options->wish.pivot.columns, "key for the columns of tables");
  add_word(*sub, "--size", options->wish.law,
           {{"parameters", LawSize::kParameters}, {"flops", LawSize::kFlops}},
           "what scaling laws are over: non-embedding parameters, or FLOPs of a run");
  add_word(*sub, "--scale", options->scale,
           {{"full", SweepScale::kFull}, {"tiny", SweepScale::kTiny}}, "of a sweep file's runs");
  sub->add_flag("--json", options->json, "machine-readable");
  sub->callback([options] { run_alone([&] { report(*options); }); });
}

}  // namespace anabranch
