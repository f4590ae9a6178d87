// `anabranch sweep report` and `anabranch export` as a user runs them.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/launch/run_program.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

// Four runs of two points, as `train` leaves them, but for the figures; one has not begun.
class SweepReportVerb : public testing::Test {
 protected:
  SweepReportVerb() {
    write("base.yaml",
          "data: {path: d}\nmodel: {preset: gpt2-85m}\ntrain: {steps: 3, batch_tokens: 1024}\n");
    write("s.yaml",
          "base: base.yaml\nvocabulary: 300\nseeds: [3, 4]\ngroups:\n"
          "  - {family: dense, name: dense}\n"
          "  - {family: c, set: {model.type: cmollm}, grid: {model.streams: [2]}}\n");
    const ProgramResult record = run("sweep expand s.yaml --json");
    write("runs/s/sweep.json", record.out);
    write_run("dense-s3", 4.0);
    write_run("dense-s4", 4.5);
    write_run("c-streams2-s3", 3.5);
  }

  [[nodiscard]] ProgramResult run(const std::string& arguments) const {
    return run_program(dir_.path().string(), arguments);
  }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }

  void write_run(const std::string& id, double loss) const {
    write(
        "runs/s/" + id + "/metrics.jsonl",
        R"({"type":"step","step":3,"tokens_total":3072,"loss":5,"learning_rate":1,"gradient_norm":1,)"
        R"("step_seconds":1,"compute_seconds_median":1,"slowest_ratio":1,)"
        R"("communication_wait_seconds_median":0,"data_wait_seconds_median":0,)"
        R"("tokens_per_second":1024,"flop_per_second":1,"resident_memory_bytes_max":1})"
        "\n"
        R"({"type":"eval","step":3,"source":"all","validation_loss":)" +
            std::to_string(loss) +
            R"(,"validation_perplexity":1,"validation_bpb":1,"tokens":1,"seconds":1})"
            "\n");
  }

  const test::TempDir dir_;
};

TEST_F(SweepReportVerb, ReportsAFileOrADirectory) {
  const ProgramResult by_file = run("sweep report s.yaml");
  ASSERT_EQ(by_file.exit_code, 0) << by_file.err;
  EXPECT_THAT(by_file.out, HasSubstr("2 points, 4 runs, of which 3 count"));
  EXPECT_THAT(by_file.out, HasSubstr("| c-streams2-s4 | waiting |"));
  EXPECT_EQ(run("sweep report runs/s").out, by_file.out);
  const auto json = nlohmann::json::parse(run("sweep report runs/s --json").out);
  EXPECT_EQ(json["points"][0]["validation_loss"]["mean"], 4.25);
  EXPECT_EQ(json["differences"][0]["validation_loss"]["mean"], -0.5);
  EXPECT_TRUE(json["differences"][0]["interval95"].is_null());  // one common seed
}

TEST_F(SweepReportVerb, WritesFiles) {
  const ProgramResult written = run("sweep report runs/s --out r --figures");
  ASSERT_EQ(written.exit_code, 0) << written.err;
  for (const char* file : {"report.md", "report.csv", "report.json", "report.html", "figures"}) {
    EXPECT_TRUE(std::filesystem::exists(dir_ / "r" / file)) << file;
  }
}

TEST_F(SweepReportVerb, MistakesHaveTheirCodes) {
  EXPECT_EQ(run("sweep report runs/s --figures").exit_code, 64);
  EXPECT_EQ(run("sweep report runs/s --columns sizes --out r").exit_code, 64);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "r"));
  EXPECT_EQ(run("sweep report runs/s --baseline densee").exit_code, 64);
  std::filesystem::remove(dir_ / "runs" / "s" / "sweep.json");
  EXPECT_EQ(run("sweep report s.yaml").exit_code, 65);
  EXPECT_EQ(run("sweep report none.yaml").exit_code, 78);
}

TEST_F(SweepReportVerb, ExportsARunOrASweep) {
  const ProgramResult one = run("export runs/s/dense-s3 --out one");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("one: 1 step, 1 evaluation"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "one" / "steps.csv"));
  const ProgramResult all = run("export runs/s --to tensorboard --out all --json");
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.err, HasSubstr("1 run without metrics left out"));
  EXPECT_EQ(nlohmann::json::parse(all.out).size(), 3U);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "all" / "c-streams2-s3" /
                                      "events.out.tfevents.0000000000.anabranch"));
  EXPECT_EQ(run("export runs/none --out x").exit_code, 65);
  EXPECT_EQ(run("export runs/s --out x --to excel").exit_code, 64);
}

}  // namespace
}  // namespace anabranch
