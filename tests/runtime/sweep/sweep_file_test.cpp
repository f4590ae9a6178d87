// What a sweep file may say, and what is refused with its line.
#include "runtime/sweep/sweep_file.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/sweep/expand.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SweepFiles : public testing::Test {
 protected:
  SweepFiles() {
    std::ofstream(dir_ / "base.yaml") << "data: {path: d}\nmodel: {preset: gpt2-2core}\n"
                                         "train: {steps: 3, batch_tokens: 512}\n";
  }

  // The first lines of every file here.
  [[nodiscard]] SweepFile parse(const std::string& rest) const {
    return parse_sweep("base: base.yaml\nvocabulary: 300\n" + rest, (dir_ / "s.yaml").string());
  }

  [[nodiscard]] Sweep expand(const std::string& rest, const SweepOptions& options = {}) const {
    return expand_sweep(parse(rest), options);
  }

  [[nodiscard]] std::vector<std::string> ids(const std::string& rest) const {
    std::vector<std::string> all;
    for (const SweepRun& run : expand(rest).runs) all.push_back(run.id);
    return all;
  }

  // What is said of a file that must be refused, without the folder's name.
  [[nodiscard]] std::string refusal(const std::string& rest) const {
    std::string what = test::refusal([&] { (void)expand(rest); });
    const std::string folder = dir_.path().string() + "/";
    for (size_t at = 0; (at = what.find(folder)) != std::string::npos;) {
      what.erase(at, folder.size());
    }
    return what;
  }

  const test::TempDir dir_;
};

TEST_F(SweepFiles, AnEmptySweepIsItsBase) {
  const Sweep sweep = expand("");
  ASSERT_EQ(sweep.runs.size(), 1U);
  EXPECT_EQ(sweep.runs[0].id, "s");
  const Config config = run_config(sweep, sweep.runs[0]);
  EXPECT_EQ(config.run.dir, "runs/s/s");
  EXPECT_EQ(config.run.seed, 1);
  EXPECT_EQ(config.model.layers, 4);
}

TEST_F(SweepFiles, GridsAreProductsAndNamesFollowFromValues) {
  EXPECT_THAT(
      ids("seeds: [7, 8]\ngrid: {model.layers: [2, 3], model.gelu: [erf]}\n"),
      ElementsAre("s-layers2-erf-s7", "s-layers2-erf-s8", "s-layers3-erf-s7", "s-layers3-erf-s8"));
  const Sweep sweep = expand("seeds: [7]\ngrid: {model.layers: [2, 3], optim.lr: [1e-3]}\n");
  const Config config = run_config(sweep, sweep.runs[1]);
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.optim.lr, 1e-3);
  EXPECT_EQ(config.run.seed, 7);
  EXPECT_EQ(config.run.name, "s-layers3-lr1e-3-s7");
}

TEST_F(SweepFiles, AnIdDoesNotDependOnItsNeighbours) {
  const auto before = ids("seeds: [7]\ngrid: {model.layers: [2, 3]}\n");
  const auto after =
      ids("seeds: [9, 7]\ngroups:\n  - {family: x}\n  - family: s\n"
          "    grid: {model.layers: [1, 2, 3]}\n");
  for (const std::string& id : before) EXPECT_THAT(after, testing::Contains(id));
}

TEST_F(SweepFiles, ZipMovesTogetherAndListsAreWrittenOut) {
  const Sweep sweep = expand(
      "zip: {size: [a, b], model.width: [16, 32], model.heads: [2, 4]}\n"
      "groups:\n"
      "  - {family: plain}\n"
      "  - family: x\n"
      "    name: \"{size}-{family}-{model.layers}\"\n"
      "    list: [{model.layers: 1, optim.lr: 0.5}, {model.layers: 2}]\n"
      "    skip: [{size: a, model.layers: 2}]\n"
      "    when: [{size: [a, b]}]\n");
  std::vector<std::string> all;
  for (const SweepPoint& point : sweep.points) all.push_back(point.id);
  EXPECT_THAT(all, ElementsAre("plain-a", "plain-b", "a-x-1", "b-x-1", "b-x-2"));
  EXPECT_EQ(sweep.points[3].config.model.heads, 4);
  EXPECT_EQ(sweep.points[3].config.optim.lr, 0.5);
  EXPECT_NE(sweep.points[4].config.optim.lr, 0.5);
}

TEST_F(SweepFiles, SetsOfTheCommandLineWinAndTinyKeepsThem) {
  const std::string text = "grid: {model.layers: [12, 24]}\n";
  EXPECT_EQ(expand(text, {.sets = {"train.steps=9"}}).points[0].config.train.steps, 9);
  const Sweep tiny = expand(text, {.scale = SweepScale::kTiny, .sets = {"train.steps=9"}});
  EXPECT_EQ(tiny.points[0].config.train.steps, 9);
  EXPECT_EQ(tiny.points[0].config.model.layers, 2);
  EXPECT_EQ(tiny.points[1].config.model.layers, 4);
  EXPECT_EQ(run_config(tiny, tiny.runs[0]).run.dir, "runs/s-tiny/s-layers12");
  EXPECT_THROW((void)expand(text, {.sets = {"run.seed=9"}}), Error);
}

TEST_F(SweepFiles, UnknownWordsAreRefusedWithTheNearest) {
  EXPECT_EQ(refusal("gird: {}\n"), "s.yaml:3: unknown key \"gird\"; nearest is grid");
  EXPECT_EQ(refusal("groups:\n  - {famly: x}\n"),
            "s.yaml:4: unknown key \"famly\"; nearest is family");
  EXPECT_EQ(refusal("grid:\n  model.layres: [2]\n"),
            "s.yaml:4: unknown key model.layres; nearest is model.layers");
  EXPECT_THAT(refusal("grid:\n  model.layers: [two]\n"),
              HasSubstr("s.yaml:4: model.layers is \"two\", must be a whole number"));
  EXPECT_EQ(refusal("grid: {size: [a]}\nname: \"{sise}\"\n"),
            "s.yaml:4: points of s have no \"sise\"; nearest is size");
  EXPECT_EQ(refusal("grid: {size: [a]}\nskip:\n  - {sise: a}\n"),
            "s.yaml:5: points of s have no \"sise\"; nearest is size");
}

TEST_F(SweepFiles, WhatWouldSilentlyDoSomethingElseIsRefused) {
  EXPECT_EQ(refusal("grid: {size: [a, b]}\nskip:\n  - {size: c}\n"),
            "s.yaml:5: this rule holds for no point of s: correct it, or leave it out");
  EXPECT_THAT(refusal("grid: {size: [" + std::string(200, 'q') + "]}\n"),
              HasSubstr("is longer than 150 bytes: give a shorter name"));
  EXPECT_THAT(refusal("grid: {size: [configs]}\nname: \"{size}\"\n"),
              HasSubstr("which the sweep's directory has for itself"));
  EXPECT_EQ(refusal("grid: {size: [a]}\nskip: [{size: a}]\n"),
            "s.yaml:1: no points of s are left: loosen its skip or when");
  EXPECT_EQ(refusal("set: {optim.lr: 1}\ngrid:\n  optim.lr: [1, 2]\n"),
            "s.yaml:5: optim.lr is given twice for the points of s; first at s.yaml:3");
  EXPECT_THAT(refusal("grid: {model.layers: [2, 3]}\nname: same\n"),
              HasSubstr("two points are called same"));
  EXPECT_EQ(refusal("zip:\n  a: [1, 2]\n  b: [1]\n"),
            "s.yaml:5: zip.b has 1 value, and a has 2: lists in zip are of one length");
  EXPECT_THAT(refusal("grid: {run.seed: [1]}\n"),
              HasSubstr("s.yaml:3: run.seed is each run's own"));
  EXPECT_THAT(refusal("grid: {model: [1]}\n"), HasSubstr("s.yaml:3: \"model\" cannot be a label"));
  EXPECT_EQ(refusal("seeds: [1, 1]\n"), "s.yaml:3: seeds is \"1\", must be different numbers");
  EXPECT_EQ(refusal("name: x\ngroups: [{family: y}]\n"),
            "s.yaml:3: name stands beside groups; it belongs into each of them");
  EXPECT_EQ(refusal("grid: {model.layers: 2}\n"),
            "s.yaml:3: model.layers is \"2\", must be a list of values");
  EXPECT_THAT(refusal("name: \"a b\"\n"), HasSubstr("s.yaml:3: a point would be called \"a b\""));
  EXPECT_THAT(refusal("name: \"{a\"\n"), HasSubstr("s.yaml:3: \"{a\" has a { without a }"));
}

TEST_F(SweepFiles, PointsThatTrainWouldRefuseAreRefused) {
  EXPECT_EQ(refusal("grid: {model.heads: [4, 5]}\n"),
            "s.yaml:1: point s-heads5: model.width 192 is not a multiple of model.heads 5");
  EXPECT_THAT(refusal("grid: {train.batch_tokens: [500]}\n"),
              HasSubstr("point s-batch_tokens500: train.batch_tokens 500 is not a multiple of"));
}

TEST_F(SweepFiles, MissingFilesAreNamed) {
  const auto what = [&](const std::string& text) {
    try {
      (void)parse_sweep(text, (dir_ / "s.yaml").string());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(what("vocabulary: 3\nbase: none.yaml\n"), HasSubstr("s.yaml:2: base "));
  EXPECT_THAT(what("vocabulary: 3\n"), HasSubstr("base is not set"));
  EXPECT_THAT(what("base: base.yaml\n"), HasSubstr("vocabulary is not set"));
  EXPECT_THROW((void)load_sweep((dir_ / "none.yaml").string()), Error);
}

TEST_F(SweepFiles, MatchingRefusesWhatItCannotMatch) {
  const std::string streams =
      "groups:\n  - family: c\n    name: c\n    set: {model.type: cmollm, model.streams: 2}\n";
  EXPECT_EQ(refusal(streams + "  - {family: w, match_macs: cc}\n"),
            "s.yaml:7: no point to match is called \"cc\"; nearest is c");
  EXPECT_THAT(refusal(streams + "  - family: w\n    match_macs: c\n    set: {model.layers: 40}\n"),
              HasSubstr("s.yaml:7: point w: no model.ffn_width gives it"));
  EXPECT_THAT(
      refusal(streams + "  - family: w\n    match_macs: c\n    set: {model.ffn_width: 8}\n"),
      HasSubstr("s.yaml:9: model.ffn_width follows from match_macs"));
}

TEST_F(SweepFiles, EarlyStopsAreRead) {
  const std::string grid = "set: {eval.every_steps: 1}\ngrid: {size: [a, b]}\n";
  const Sweep sweep =
      expand(grid + "stop_early: {after_fraction: 0.2, margin: 0.3, per: [size]}\n");
  EXPECT_EQ(sweep.stop_early, (EarlyStop{LossKind::kValidationLoss, 0.2, 0, 0.3, 0.5, {"size"}}));
  EXPECT_EQ(expand(grid).stop_early, std::nullopt);
  EXPECT_EQ(expand("stop_early: {by: loss, after_tokens: 9}\n").stop_early,
            (EarlyStop{LossKind::kLoss, 0, 9, 0.1, 0.5, {}}));
}

TEST_F(SweepFiles, EarlyStopsThatSayNothingAreRefused) {
  EXPECT_EQ(refusal("stop_early: {after: 3}\n"),
            "s.yaml:3: unknown key stop_early.after; nearest is stop_early.after_fraction");
  EXPECT_EQ(refusal("stop_early: {after_fraction: 2}\n"),
            "s.yaml:3: stop_early.after_fraction is \"2\", must be a number from 0 to 1");
  EXPECT_THAT(refusal("stop_early: {margin: 1}\n"),
              HasSubstr("s.yaml:3: stop_early needs either after_fraction or after_tokens"));
  EXPECT_THAT(refusal("stop_early: {after_fraction: 0.5, after_tokens: 3}\n"),
              HasSubstr("either after_fraction or after_tokens"));
  EXPECT_EQ(refusal("stop_early: {after_fraction: 0.5, keep: 1}\n"),
            "s.yaml:3: stop_early.keep is 1, must lie between 0 and 1");
  EXPECT_EQ(
      refusal("grid: {size: [a]}\nstop_early: {by: loss, after_tokens: 3, per: [family, sise]}\n"),
      "s.yaml: stop_early.per: point s-a has no \"sise\"; nearest is size");
  EXPECT_EQ(refusal("set: {eval.every_steps: 0}\nstop_early: {after_tokens: 3}\n"),
            "s.yaml: stop_early.by is validation_loss, and point s has none before its end: set "
            "eval.every_steps, or by: loss");
  EXPECT_EQ(refusal("stop_early: {after_tokens: 3, per: size}\n"),
            "s.yaml:3: stop_early.per is \"size\", must be a list of words");
}

TEST_F(SweepFiles, RunsAreWrittenAsConfigurationsThatReadBack) {
  const Sweep sweep = expand("seeds: [7, 8]\ngrid: {model.layers: [2, 3]}\n");
  const std::string out = (dir_ / "out").string();
  write_runs(sweep, out, {"by a test"});
  write_runs(sweep, out, {"by a test"});  // the same names again
  for (const SweepRun& run : sweep.runs) {
    EXPECT_EQ(load_config(out + "/" + run.id + ".yaml"), run_config(sweep, run)) << run.id;
  }
  std::ofstream(out + "/other.yaml") << "schema: 1\n";
  EXPECT_THROW(write_runs(sweep, out, {}), Error);
}

}  // namespace
}  // namespace anabranch
