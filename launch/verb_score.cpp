#include <chrono>
#include <iostream>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/read_file.h"
#include "launch/inference.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "runtime/evaluation/answer_file.h"

namespace anabranch {
namespace {

struct ScoreWish {
  ModelWish model;
  AnswerFileOptions options;
  std::string requests, out;
  bool json = false;
};

int run(const ScoreWish& wish, RankProcess& process) {
  LoadedModel loaded = load_on_device(wish.model, process);
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Progress> progress;
  const auto show = [&](size_t done, size_t all) {
    if (!process.first()) return;
    if (!progress) progress.emplace("score", static_cast<double>(all), Progress::Unit::kCount);
    progress->update(static_cast<double>(done));
  };
  const AnswerFileCounts counts = answer_file(
      wish.requests, wish.out, *loaded.model, loaded.tokenizer,
      read_file(loaded.checkpoint / "manifest.json"), process.world(), wish.options, show);
  if (!process.first()) return 0;
  progress.reset();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (wish.json) {
    std::cout << nlohmann::ordered_json{{"checkpoint", loaded.checkpoint.string()},
                                        {"step", loaded.manifest.step},
                                        {"device", process.devices().hardware()},
                                        {"out", wish.out},
                                        {"requests", counts.requests},
                                        {"kept", counts.kept},
                                        {"tokens", counts.tokens},
                                        {"seconds", seconds}}
                     .dump(2)
              << "\n";
    return 0;
  }
  std::cout << "checkpoint of step " << loaded.manifest.step << ": " << loaded.checkpoint.string()
            << "\n"
            << wish.out << ": " << count_text(static_cast<double>(counts.requests), "answer")
            << ", of which " << counts.kept << " were there; "
            << count_text(static_cast<double>(counts.tokens), "token") << " in "
            << time_text(seconds) << "\n";
  return 0;
}

}  // namespace

void add_score(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand(
      "score", "answers lm-evaluation-harness's requests; under mpirun the ranks share the work");
  auto wish = std::make_shared<ScoreWish>();
  add_model_options(*verb, wish->model);
  verb->add_option("--requests", wish->requests, "file with a request in JSON a line")->required();
  verb->add_option("--out", wish->out, "file of answers, a line each; what it has is kept")
      ->required();
  add_whole(*verb, "--batch-tokens", wish->options.answers.batch_tokens, {1, 1 << 24},
            "tokens computed side by side");
  verb->add_flag("--begin", wish->options.answers.begin,
                 "every text follows the token that begins a document, not only one with nothing "
                 "before it");
  verb->add_flag("--json", wish->json, "machine-readable figures");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
