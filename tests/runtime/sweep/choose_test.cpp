// A learning rate chosen from a pilot's records.
#include "runtime/sweep/choose.h"

#include <cmath>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "monitoring/json_lines.h"
#include "runtime/metrics_sink.h"
#include "runtime/sweep/expand.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Pilot and sweep files, and the pilot's runs as if they had been trained.
class Choosing : public testing::Test {
 protected:
  Choosing() {
    write("base.yaml",
          "data: {path: d}\nmodel: {preset: gpt2-2core}\noptim: {lr: 9e-3}\n"
          "train: {steps: 3, batch_tokens: 512}\n");
    write("pilot.yaml",
          "base: base.yaml\nvocabulary: 300\nseeds: [1, 2]\n"
          "grid: {size: [s, m], optim.lr: [1e-4, 1e-3, 1e-2]}\nname: \"{size}-{optim.lr}\"\n");
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
  }

  [[nodiscard]] SweepOptions options() const { return {.runs = (dir_ / "runs").string()}; }

  // Writes the pilot's record.
  void submit() const {
    const Sweep pilot = expand_sweep(load_sweep((dir_ / "pilot.yaml").string()));
    fs::create_directories(dir_ / "runs/pilot");
    write("runs/pilot/sweep.json", record_json(record_of(pilot, {})));
  }

  void train(const std::string& id, double loss, int64_t steps = 3) const {
    const fs::path run = dir_ / "runs/pilot" / id;
    fs::create_directories(run);
    fs::remove(run / "metrics.jsonl");
    Metrics metrics({}, {"all"}, {});
    JsonLines lines((run / "metrics.jsonl").string(), [](const std::string&) {});
    RunHistory history({"all"});
    MetricsSink sink(metrics, history, lines);
    for (int64_t step = 1; step <= steps; ++step) {
      StepReport report;
      report.step = step;
      report.logged = true;
      report.loss = 9;
      sink.step(report);
      EvalReport eval;
      eval.step = step;
      eval.loss = loss + static_cast<double>(steps - step);
      sink.eval(eval);
    }
  }

  // All runs: of s the middle value is best on the mean, though 1e-2 has the best seed; of m 1e-2.
  void train_all() const {
    submit();
    const std::map<std::string, double> losses{
        {"s-1e-4-s1", 3.4}, {"s-1e-4-s2", 3.4}, {"s-1e-3-s1", 3.1}, {"s-1e-3-s2", 3.1},
        {"s-1e-2-s1", 3.0}, {"s-1e-2-s2", 3.5}, {"m-1e-4-s1", 3.0}, {"m-1e-4-s2", 3.0},
        {"m-1e-3-s1", 2.9}, {"m-1e-3-s2", 2.9}, {"m-1e-2-s1", 2.8}, {"m-1e-2-s2", 2.8}};
    for (const auto& [id, loss] : losses) train(id, loss);
  }

  [[nodiscard]] Sweep expand(const std::string& choose, const std::string& rest = "") const {
    const std::string text = "base: base.yaml\nvocabulary: 300\nchoose:\n  - " + choose +
                             "\ngrid: {size: [s, m], model.layers: [2, 3]}\n" + rest;
    return expand_sweep(parse_sweep(text, (dir_ / "main.yaml").string()), options());
  }

  [[nodiscard]] std::string refusal(const std::string& choose, const std::string& rest = "") const {
    return test::refusal([&] { (void)expand(choose, rest); });
  }

  const std::string rule_ = "{key: optim.lr, from: pilot.yaml, per: [size]}";
  const test::TempDir dir_;
};

TEST_F(Choosing, TheLowestMeanOverSeedsWinsBySize) {
  train_all();
  const Sweep sweep = expand(rule_);
  EXPECT_EQ(sweep.unchosen, "");
  EXPECT_NO_THROW(require_chosen(sweep));
  ASSERT_EQ(sweep.points.size(), 4U);
  EXPECT_EQ(sweep.points[0].id, "main-s-layers2");  // the name is what it was
  EXPECT_EQ(sweep.points[0].config.optim.lr, 1e-3);
  EXPECT_EQ(sweep.points[1].config.optim.lr, 1e-3);
  EXPECT_EQ(sweep.points[2].config.optim.lr, 1e-2);
  EXPECT_EQ(record_of(sweep, {}).points[0].setting("optim.lr"), "1e-3");
  EXPECT_THAT(
      sweep.chosen,
      ElementsAre(HasSubstr("optim.lr of size m is 1e-2: validation_loss 2.8, the mean of 2 "
                            "runs"),
                  HasSubstr("optim.lr of size s is 1e-3: validation_loss 3.1")));
  EXPECT_THAT(sweep.chosen[0], HasSubstr("extend the pilot's grid"));
  EXPECT_THAT(sweep.chosen[1], testing::Not(HasSubstr("extend")));
  const Sweep whole = expand("{key: optim.lr, from: pilot.yaml}");  // 3.2, 3.0, 3.025
  for (const SweepPoint& point : whole.points) EXPECT_EQ(point.config.optim.lr, 1e-3);
  SweepOptions own = options();
  own.sets = {"optim.lr=5e-5"};
  const SweepFile file =
      parse_sweep("base: base.yaml\nvocabulary: 300\nchoose: [" + rule_ + "]\ngrid: {size: [s]}\n",
                  (dir_ / "main.yaml").string());
  EXPECT_EQ(expand_sweep(file, own).points[0].config.optim.lr, 5e-5);
}

TEST_F(Choosing, BeforeThePilotIsDoneTheBaseStands) {
  Sweep sweep = expand(rule_);
  EXPECT_EQ(sweep.points[0].config.optim.lr, 9e-3);
  EXPECT_THAT(sweep.unchosen, HasSubstr("has not been run"));
  EXPECT_THAT(test::refusal([&] { require_chosen(sweep); }), HasSubstr("or give --unchosen"));
  train_all();
  train("s-1e-3-s2", 3.1, 2);
  train("m-1e-3-s1", std::nan(""));
  fs::remove_all(dir_ / "runs/pilot/m-1e-4-s1");
  sweep = expand(rule_);
  EXPECT_EQ(sweep.points[0].config.optim.lr, 9e-3);
  EXPECT_THAT(sweep.chosen, IsEmpty());
  for (const char* fault : {"s-1e-3-s2 is at step 2 of 3", "m-1e-4-s1 has not begun",
                            "m-1e-3-s1 has a loss that is not finite"}) {
    EXPECT_THAT(sweep.unchosen, HasSubstr(fault));
  }
  EXPECT_THAT(sweep.unchosen, testing::Not(HasSubstr("m-1e-2-s1")));
}

TEST_F(Choosing, WhatThePilotStoppedIsOut) {
  train_all();
  train("m-1e-2-s1", 1.0, 1);
  train("m-1e-2-s2", 1.0, 1);
  for (const char* id : {"m-1e-2-s1", "m-1e-2-s2"}) {
    write("runs/pilot/" + std::string(id) + "/" + kStoppedEarly, "{}");
  }
  EXPECT_EQ(expand(rule_).points[2].config.optim.lr, 1e-3);
  for (const char* id : {"m-1e-4-s1", "m-1e-3-s1"}) {
    write("runs/pilot/" + std::string(id) + "/" + kStoppedEarly, "{}");
  }
  EXPECT_THAT(expand(rule_).unchosen, HasSubstr("cannot be chosen for m: the pilot's own stop"));
}

TEST_F(Choosing, RefusesWhatItCannotChoose) {
  train_all();
  EXPECT_THAT(refusal("{key: lr, from: pilot.yaml}"), HasSubstr("choose.key is \"lr\", must be a"));
  EXPECT_THAT(refusal("{key: optim.lr}"), HasSubstr("choose.from is not set"));
  EXPECT_THAT(refusal("{key: optim.lr, from: pilto.yaml}"), HasSubstr("pilto.yaml is not a file"));
  EXPECT_THAT(refusal("{key: optim.lr, from: pilot.yaml, per: [sise]}"),
              HasSubstr("point main-s-layers2 has no \"sise\"; nearest is size"));
  EXPECT_THAT(refusal("{key: optim.lr, from: pilot.yaml, for: [size]}"),
              HasSubstr("unknown key choose.for; known here: key, from, per, by"));
  EXPECT_THAT(refusal(rule_, "set: {optim.lr: 1}\n"), HasSubstr("is given, and chosen at "));
  EXPECT_THAT(expand("{key: optim.lr, from: pilot.yaml, per: [model.layers]}").unchosen,
              HasSubstr("has no \"model.layers\""));
  write("pilot.yaml",
        "base: base.yaml\nvocabulary: 300\ngrid: {size: [s], optim.lr: [1e-4, 1e-3]}\n");
  submit();
  for (const char* id : {"pilot-s-lr1e-4", "pilot-s-lr1e-3"}) train(id, 3);
  EXPECT_THAT(refusal(rule_),
              HasSubstr("has no points of size m, and point main-m-layers2 is one"));
}

}  // namespace
}  // namespace anabranch
