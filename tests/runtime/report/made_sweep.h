// A sweep's directory as runs leave it, with figures that a test chooses.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "monitoring/json_lines.h"
#include "runtime/metrics_sink.h"
#include "runtime/sweep/record.h"
#include "tests/support/temp_dir.h"

namespace anabranch::test {

class MadeSweep {
 public:
  static constexpr int64_t kSteps = 10, kBatchTokens = 8;

  using Settings = std::vector<std::pair<std::string, std::string>>;

  MadeSweep() {
    record_.name = "made";
    record_.file = "made.yaml";
    record_.vocabulary = 300;
  }

  [[nodiscard]] std::string path() const { return dir_.path().string(); }

  [[nodiscard]] std::filesystem::path run(const std::string& id) const { return dir_ / id; }

  // A point of `parameters` outside the embedding, and as many multiply-adds a token.
  void add(const std::string& id, const std::string& family, const Settings& settings,
           int64_t parameters, const std::vector<int64_t>& seeds, const std::string& matches = "") {
    RecordedPoint point;
    point.id = id;
    point.family = family;
    point.type = "gpt2";
    point.matches = matches;
    point.settings = settings;
    point.cost.parameters = parameters + 1000;
    point.cost.non_embedding_parameters = parameters;
    point.cost.linear_macs = static_cast<double>(parameters);
    point.steps = kSteps;
    point.batch_tokens = kBatchTokens;
    for (const int64_t seed : seeds) {
      record_.runs.push_back({id + "-s" + std::to_string(seed), record_.points.size(), seed});
    }
    record_.points.push_back(point);
  }

  void write_record() const { std::ofstream(dir_ / "sweep.json") << record_json(record_); }

  // What a run wrote up to a step: `tell` is given a sink.
  template <class F>
  void write(const std::string& id, F&& tell) const {
    std::filesystem::create_directories(run(id));
    Metrics metrics({}, {"all"}, {.layers = 3, .streams = 2});
    JsonLines lines((run(id) / "metrics.jsonl").string(), [](const std::string&) {});
    RunHistory history({"all"});
    MetricsSink sink(metrics, history, lines);
    tell(sink);
  }

  // Steps of falling loss at 4 tokens a second, and a last evaluation.
  void finish(const std::string& id, double loss, int64_t steps = kSteps) const {
    write(id, [&](MetricsSink& sink) {
      for (int64_t step = 1; step <= steps; ++step) sink.step(step_report(step, loss));
      if (steps == kSteps) sink.eval(eval_report(steps, loss));
    });
  }

  static StepReport step_report(int64_t step, double loss) {
    StepReport report;
    report.step = step;
    report.logged = true;
    report.tokens = kBatchTokens * step;
    report.loss = loss + 1.0 / static_cast<double>(step);
    report.seconds = 2;
    report.tokens_per_second = 4;
    return report;
  }

  static EvalReport eval_report(int64_t step, double loss, bool looks_ahead = false) {
    EvalReport report;
    report.step = step;
    report.loss = loss;
    report.perplexity = std::exp(loss);
    report.bits_per_byte = loss / 2;
    report.looks_ahead = looks_ahead;
    return report;
  }

  void attempts(const std::string& id, const std::string& lines) const {
    std::filesystem::create_directories(run(id));
    std::ofstream(run(id) / "attempts.jsonl") << lines;
  }

 private:
  const TempDir dir_;
  SweepRecord record_;
};

}  // namespace anabranch::test
