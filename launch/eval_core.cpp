#include "launch/eval_core.h"

#include <cmath>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "launch/options.h"
#include "launch/progress.h"
#include "runtime/evaluation/core_suite.h"

namespace anabranch {

namespace {

using Json = nlohmann::ordered_json;
using Results = std::vector<CoreTaskResult>;

constexpr const char* kBoolq = "boolq";

// Not-a-number is null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::string type_text(const CoreTask& task) {
  return std::string(words_of(task.type)[static_cast<size_t>(task.type)]);
}

ScorerCounts total(const Results& results) {
  ScorerCounts all;
  for (const CoreTaskResult& result : results) {
    all.tokens += result.counts.tokens;
    all.computed += result.counts.computed;
    all.padding += result.counts.padding;
    all.truncated += result.counts.truncated;
  }
  return all;
}

bool has_boolq(const Results& results) {
  return std::ranges::any_of(results, [](const auto& r) { return r.task.label == kBoolq; });
}

void print_json(const Results& results, const LoadedModel& loaded, const std::string& device) {
  Json tasks = Json::array();
  for (const CoreTaskResult& result : results) {
    tasks.push_back({{"task", result.task.label},
                     {"type", type_text(result.task)},
                     {"shots", result.task.shots},
                     {"questions", result.answers.size()},
                     {"accuracy", result.accuracy},
                     {"baseline", result.task.baseline / 100},
                     {"centred", result.centred},
                     {"truncated", result.counts.truncated},
                     {"tokens", result.counts.tokens},
                     {"computed_tokens", result.counts.computed},
                     {"padding_tokens", result.counts.padding},
                     {"seconds", result.seconds}});
  }
  Json document = {{"checkpoint", loaded.checkpoint.string()},
                   {"step", loaded.manifest.step},
                   {"device", device},
                   {"suite", "core"},
                   {"tasks", tasks},
                   {"core", number(core_metric(results))}};
  if (has_boolq(results)) document["core_without_boolq"] = number(core_metric(results, kBoolq));
  std::cout << document.dump(2) << "\n";
}

void print_table(const Results& results, const LoadedModel& loaded) {
  std::cout << "checkpoint of step " << loaded.manifest.step << ": " << loaded.checkpoint.string()
            << "\n"
            << fmt::format("{:<34} {:<18} {:>5} {:>9} {:>9} {:>9} {:>9}\n", "task", "type", "shots",
                           "questions", "accuracy", "guessing", "centred");
  for (const CoreTaskResult& result : results) {
    std::cout << fmt::format("{:<34} {:<18} {:>5} {:>9} {:>9.4f} {:>9.4f} {:>9.4f}\n",
                             result.task.label, type_text(result.task), result.task.shots,
                             result.answers.size(), result.accuracy, result.task.baseline / 100,
                             result.centred);
  }
  std::cout << fmt::format("CORE of {} tasks: {:.4f}\n", results.size(), core_metric(results));
  if (has_boolq(results) && results.size() > 1) {
    std::cout << fmt::format("CORE without BoolQ: {:.4f}\n", core_metric(results, kBoolq));
  }
  const ScorerCounts counts = total(results);
  double seconds = 0;
  for (const CoreTaskResult& result : results) seconds += result.seconds;
  std::cout << fmt::format(
      "{} tokens in {}; {:.2f} of them were computed, the rest shared; {} of padding\n",
      count_text(static_cast<double>(counts.tokens)), time_text(seconds),
      static_cast<double>(counts.computed) /
          static_cast<double>(std::max<int64_t>(counts.tokens, 1)),
      count_text(static_cast<double>(counts.padding)));
  if (counts.truncated > 0) {
    std::cout << counts.truncated << " prompts are longer than the model's context of "
              << loaded.model->context() << " tokens and lost their beginning\n";
  }
}

// A line for each question, in the order asked.
void write_answers(const std::string& path, const Results& results) {
  std::string lines;
  for (const CoreTaskResult& result : results) {
    for (const CoreAnswer& answer : result.answers) {
      Json scores = Json::array();
      for (const double score : answer.scores) scores.push_back(number(score));
      lines +=
          Json{{"task", result.task.label}, {"question", answer.place}, {"gold", answer.gold},
               {"chosen", answer.chosen},   {"right", answer.right()},  {"nats_per_token", scores}}
              .dump() +
          "\n";
    }
  }
  write_atomically(path, lines);
}

}  // namespace

void add_core_options(CLI::App& verb, CoreWish& wish) {
  verb.add_option("--bundle", wish.bundle, "core: folder of the evaluation bundle");
  verb.add_option("--tasks", wish.tasks, "core: labels of some tasks, a,b; default: all")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_whole(verb, "--max-per-task", wish.max_per_task, {},
            "core: questions of a task, after they are shuffled; 0: all");
  add_whole(verb, "--batch-tokens", wish.batch_tokens, {1, 1 << 24},
            "core: tokens computed side by side");
  verb.add_flag("!--whole-prompts", wish.share,
                "core: compute each prompt whole, even what choices begin with alike");
  verb.add_option("--answers", wish.answers, "core: file for a line of JSON on each question");
}

void eval_core(const CoreWish& wish, LoadedModel& loaded, RankProcess& process, bool json) {
  if (wish.bundle.empty()) {
    throw usage_error("--suite core needs --bundle, the folder with core.yaml");
  }
  CoreOptions options{.max_per_task = wish.max_per_task,
                      .scorer = {.batch_tokens = wish.batch_tokens, .share = wish.share}};
  Results results;
  for (const CoreTask& task : read_core_tasks(wish.bundle, wish.tasks)) {
    std::optional<Progress> progress;
    const auto show = [&](size_t done, size_t all) {
      if (!process.first()) return;
      if (!progress) {
        progress.emplace("core " + task.label, static_cast<double>(all), Progress::Unit::kCount);
      }
      progress->update(static_cast<double>(done));
    };
    results.push_back(
        run_core_task(task, *loaded.model, loaded.tokenizer, process.world(), options, show));
  }
  if (!process.first()) return;
  if (!wish.answers.empty()) write_answers(wish.answers, results);
  if (json) return print_json(results, loaded, process.devices().hardware());
  print_table(results, loaded);
}

}  // namespace anabranch
