// `anabranch sweep expand` as a user runs it: table, figures, and configurations that train.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/launch/run_program.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class SweepVerb : public testing::Test {
 protected:
  SweepVerb() {
    write("base.yaml",
          "data: {path: d}\nmodel: {preset: gpt2-85m}\ntrain: {steps: 30, batch_tokens: 1024}\n"
          "metrics: {listen: \"off\"}\n");
    write("s.yaml",
          "base: base.yaml\nvocabulary: 300\nseeds: [3, 4]\ngroups:\n"
          "  - {family: c, set: {model.type: cmollm}, grid: {model.streams: [2, 4]}}\n"
          "  - {family: w, name: \"w{n}\", match_macs: \"c-streams{n}\", grid: {n: [2, 4]}}\n");
  }

  // Runs in the folder, where relative paths are.
  [[nodiscard]] ProgramResult run(const std::string& arguments) const {
    return run_program(dir_.path().string(), arguments);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
  }

  const test::TempDir dir_;
};

TEST_F(SweepVerb, PrintsPointsApart) {
  const ProgramResult plain = run("sweep expand s.yaml");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(plain.err, "");
  EXPECT_THAT(plain.out, HasSubstr("s: 4 points, 8 runs; vocabulary of 300; "));
  EXPECT_THAT(plain.out, HasSubstr("\nc-streams4  c "));
  const auto json = nlohmann::json::parse(run("sweep expand s.yaml --json").out);
  ASSERT_EQ(json["points"].size(), 4U);
  const auto& widened = json["points"][3];
  EXPECT_EQ(widened["id"], "w4");
  EXPECT_EQ(widened["matches"], "c-streams4");
  EXPECT_EQ(widened["ffn_width"], 7680);
  EXPECT_EQ(widened["front_end_macs"], 0);
  EXPECT_EQ(widened["runs"][1]["id"], "w4-s4");
  const auto larger = nlohmann::json::parse(run("sweep expand s.yaml --json --vocab 400").out);
  EXPECT_EQ(larger["points"][0]["parameters"].get<int64_t>(),
            json["points"][0]["parameters"].get<int64_t>() + 100 * 768);
}

TEST_F(SweepVerb, BadFilesEnd78WithTheirLine) {
  write("bad.yaml", "base: base.yaml\nvocabulary: 300\ngrid:\n  model.stream: [1]\n");
  const ProgramResult bad = run("sweep expand bad.yaml --out out");
  EXPECT_EQ(bad.exit_code, 78);
  EXPECT_THAT(bad.err, HasSubstr("bad.yaml:4: unknown key model.stream"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
  EXPECT_EQ(run("sweep expand s.yaml --scale small").exit_code, 64);
}

TEST_F(SweepVerb, DoesNotWriteWhatAPilotIsStillToChoose) {
  write("c.yaml",
        "base: base.yaml\nvocabulary: 300\nchoose: [{key: optim.lr, from: s.yaml}]\n"
        "grid: {model.layers: [2, 3]}\n");
  const ProgramResult table = run("sweep expand c.yaml");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.err, HasSubstr("c.yaml:3: optim.lr is still what base.yaml has: the pilot "
                                   "s.yaml has not been run (runs/s has no sweep.json)"));
  const ProgramResult refused = run("sweep expand c.yaml --out out");
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_THAT(refused.err, HasSubstr("or give --unchosen"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
  EXPECT_EQ(run("sweep expand c.yaml --out out --unchosen").exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "out/c-layers3.yaml"));
}

TEST_F(SweepVerb, PlansBeforeAnythingIsSubmitted) {
  const std::string machine =
      std::string(" --machine ") + AB_SOURCE_DIR + "/configs/machines/h200.yaml";
  const ProgramResult text = run("sweep plan s.yaml --nodes 2 --ranks-per-node 8" + machine);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\nc-streams4"));
  EXPECT_THAT(text.out, HasSubstr("s: 8 runs of 4 points on 2 nodes of 8 ranks, h200\n"));
  EXPECT_THAT(text.out, HasSubstr("of the cluster's; started now, done on "));
  const auto plan = nlohmann::json::parse(
      run("sweep plan s.yaml --json --ranks 4 --ranks-per-node 8 --set train.batch_tokens=8192" +
          machine)
          .out);
  EXPECT_EQ(plan["points"][3]["id"], "w4");
  EXPECT_EQ(plan["points"][3]["runs_a_node"], 2);
  EXPECT_EQ(plan["schedule"].size(), 8U);
  EXPECT_EQ(plan["schedule"][0]["start_hours"], 0);
  double hours = 0;
  for (const auto& point : plan["points"]) hours += 2 * point["rank_hours"].get<double>();
  EXPECT_DOUBLE_EQ(plan["rank_hours"].get<double>(), hours);
  EXPECT_EQ(run("sweep plan s.yaml --ranks 3 --ranks-per-node 8" + machine).exit_code, 78);
  const ProgramResult large =
      run("sweep plan s.yaml --set model.width=76800 --set model.heads=300" + machine);
  EXPECT_EQ(large.exit_code, 78);
  EXPECT_THAT(large.out, HasSubstr("does not fit 1 rank: "));
}

TEST_F(SweepVerb, TrainTakesWhatItWrites) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i) + " of a text\n\n";
  write("text.txt", text);
  ASSERT_EQ(
      run("tokenizer train --vocab 300 --special '<|endoftext|>' --out t.json text.txt").exit_code,
      0);
  ASSERT_EQ(run("shard build --tokenizer t.json --document paragraph --validation 0.1 text.txt "
                "--out d")
                .exit_code,
            0);
  const ProgramResult written = run("sweep expand s.yaml --scale tiny --out out");
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.err, "");  // the data's vocabulary is the file's
  EXPECT_THAT(written.out, HasSubstr("8 configurations in out"));
  EXPECT_THAT(run("sweep expand s.yaml --vocab 301").err,
              HasSubstr("the data in d has a vocabulary of 300, and this table is for one of 301"));
  for (const char* id : {"c-streams4-s3", "w4-s4"}) {
    const ProgramResult trained = run("train out/" + std::string(id) + ".yaml");
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_TRUE(std::filesystem::exists(dir_ / ("runs/s-tiny/" + std::string(id)))) << id;
  }
}

}  // namespace
}  // namespace anabranch
