#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/launch/run_program.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const std::string kMachines = std::string(AB_SOURCE_DIR) + "/configs/machines/";

class PlanTest : public testing::Test {
 protected:
  void SetUp() override {
    write("kappa.yaml",
          "model: {type: kappa_moe, layers: 2, width: 32, heads: 2, context: 16, experts: 4, "
          "moe_first: 0}\n"
          "train: {precision: bf16, batch_tokens: 512, micro_batch: 2}\n");
  }

  [[nodiscard]] ProgramResult plan(const std::string& arguments) const {
    return run_program(dir_.path().string(),
                       "plan " + (dir_ / "kappa.yaml").string() + " --vocab 100 " + arguments);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }

  test::TempDir dir_;
};

TEST_F(PlanTest, PrintsLayoutsWithTheirReasons) {
  const ProgramResult result =
      plan("--nodes 2 --ranks-per-node 4 --machine " + kMachines + "h200.yaml");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* word : {"data 8 x model 1, zero 0", "data 2 x model 4, zero 1", "not legal",
                           "more than model.experts 4", "fastest of those that fit",
                           "where its step goes", "gradients of all ranks"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
}

TEST_F(PlanTest, JsonAddsUp) {
  const ProgramResult result =
      plan("--nodes 2 --ranks-per-node 4 --json --machine " + kMachines + "a100-80.yaml");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json document = Json::parse(result.out);
  EXPECT_EQ(document["machine"], "a100-80");
  EXPECT_EQ(document["tokens_per_step"], 512);
  ASSERT_EQ(document["layouts"].size(), 7U);
  for (const Json& layout : document["layouts"]) {
    if (!layout["legal"].get<bool>()) {
      EXPECT_THAT(layout["refused"].get<std::string>(), HasSubstr("experts"));
      continue;
    }
    double seconds = 0;
    for (const auto& part : layout["seconds"]) seconds += part.get<double>();
    EXPECT_NEAR(seconds, layout["step_seconds"].get<double>(), 1e-9);
    EXPECT_GE(layout["memory_reserved_bytes"].get<double>(), layout["memory_bytes"].get<double>());
  }
}

TEST_F(PlanTest, ScalesAndDraws) {
  const std::string svg = (dir_ / "curves.svg").string();
  const ProgramResult result = plan("--ranks-per-node 8 --scale 1,2,4,8,16,64 --svg " + svg +
                                    " --machine " + kMachines + "h100.yaml");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("weak: as many tokens of a step a rank"));
  EXPECT_THAT(result.out, HasSubstr("strong: as many tokens a step"));
  EXPECT_TRUE(std::filesystem::exists(svg));
}

TEST_F(PlanTest, WhatIsWrongIsSaid) {
  const std::string machine = " --machine " + kMachines + "h100.yaml";
  EXPECT_EQ(plan("--nodes 1").exit_code, 64);  // no machine
  EXPECT_EQ(plan("--ranks-per-node 16" + machine).exit_code, 78);
  EXPECT_EQ(plan("--svg x.svg" + machine).exit_code, 64);
  EXPECT_EQ(plan("--ranks-per-node 6 --set model.experts=5 --set model.pool_sequences=4" + machine)
                .exit_code,
            78);  // 6 ranks share no 16 sequences a step
  const ProgramResult missing = plan("--machine none.yaml");
  EXPECT_EQ(missing.exit_code, 78);
  EXPECT_THAT(missing.err, HasSubstr("none.yaml: no such file"));
}

TEST_F(PlanTest, ABenchWritesTheMachineThatAPlanReads) {
  const std::string file = (dir_ / "here.yaml").string();
  const ProgramResult fit = run_program(
      dir_.path().string(), "bench comm --fit " + file + " --max-bytes 65536 --repeats 2");
  ASSERT_EQ(fit.exit_code, 0) << fit.err;
  EXPECT_THAT(fit.out, HasSubstr("product_share"));
  const ProgramResult result = plan("--json --machine " + file);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out)["machine"], "here");
}

}  // namespace
}  // namespace anabranch
