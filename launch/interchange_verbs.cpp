#include "launch/interchange_verbs.h"

#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/base/error.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "launch/rank_process.h"
#include "runtime/config/number.h"
#include "runtime/interchange/export.h"
#include "runtime/interchange/import.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

struct ExportWish {
  ExportOptions options;
  bool names = false;
};

void print_names(const ExportOptions& options) {
  for (const ExportName& n : export_names(options)) {
    std::cout << fmt::format("{:<40} {:<52} {} {}{}\n", n.ours, n.name, name_of(n.type),
                             join(n.shape), n.transposed ? " transposed" : "");
  }
}

void export_and_say(const ExportWish& wish) {
  const ExportOptions& options = wish.options;
  if (wish.names) return print_names(options);
  if (options.out.empty()) throw usage_error("--out: found no value; expected a folder to make");
  const ExportReport report = export_run(options);
  const bool hf = report.format == ExportFormat::kHf;
  std::cout << options.out.string() << ": step " << report.step << ", "
            << (hf ? "GPT-2 as transformers loads it" : "tensors by our own names") << "\n";
  for (const fs::path& file : report.files) {
    std::cout << fmt::format("  {:<22} {}\n", file.filename().string(),
                             bytes_text(static_cast<double>(fs::file_size(file))));
  }
}

void import_and_say(const ImportOptions& options) {
  const ImportReport report = import_run(options);
  std::cout << options.out.string() << ": "
            << (report.format == "hf" ? "GPT-2 of transformers" : "an export of ours") << ", "
            << counted(report.tensors, "tensor") << ", " << counted(report.parameters, "parameter")
            << "\n";
  if (report.padding > 0) {
    std::cout << "  left out " << counted(report.padding, "row")
              << " of the vocabulary, for which there is no token\n";
  }
  if (!report.ignored.empty()) {
    std::cout << "  left out " << counted(std::ssize(report.ignored), "mask")
              << ", which are no weights: " << report.ignored.front() << " and the like\n";
  }
  std::cout << "  train " << (options.out / "config.yaml").string()
            << " --set data.path=DATA --set train.steps=N --set train.batch_tokens=N goes on\n";
}

}  // namespace

void add_checkpoint_export(CLI::App& checkpoint) {
  auto wish = std::make_shared<ExportWish>();
  ExportOptions& options = wish->options;
  CLI::App* sub = checkpoint.add_subcommand("export", "safetensors, for other programs");
  sub->add_option("PATH", options.path, "run directory or checkpoint")->required();
  sub->add_option("--out", options.out, "folder to make");
  add_whole(*sub, "--step", options.step, {},
            "which; 0: before the first step; default: the newest");
  add_word(
      *sub, "--format", {"hf", "generic"}, "",
      [&options](size_t place) { options.format = static_cast<ExportFormat>(place); },
      "hf: GPT-2 as transformers loads it; generic: our own names; default: hf of gpt2 models");
  add_word(
      *sub, "--type", {"master", "bf16"}, "master",
      [&options](size_t place) { options.bf16 = place == 1; },
      "master: parameters as they are trained; bf16: rounded to bfloat16");
  add_whole(*sub, "--batches", options.batches, {0, 1 << 20},
            "also the batches of so many following steps (format generic)");
  sub->add_flag("--names", wish->names, "writes nothing, and lists what would be in the file");
  sub->callback([wish] { run_alone([&] { export_and_say(*wish); }); });
}

void add_checkpoint_import(CLI::App& checkpoint) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App* sub =
      checkpoint.add_subcommand("import", "a model from elsewhere, as a run to go on from");
  sub->add_option("FOLDER", options->from, "GPT-2 by transformers, or a generic export")
      ->required();
  sub->add_option("--out", options->out, "run directory to make")->required();
  sub->add_option("--tokenizer", options->tokenizer, "tokenizer.json, if the folder has none");
  sub->callback([options] { run_alone([&] { import_and_say(*options); }); });
}

}  // namespace anabranch
