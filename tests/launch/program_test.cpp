#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config/config.h"
#include "tests/launch/run_program.h"

namespace anabranch {

namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }

  void TearDown() override { std::filesystem::remove_all(dir_); }

  ProgramResult run(const std::string& arguments, const std::string& environment = "") {
    return run_program(dir_, arguments, environment);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }

  const std::string dir_ = testing::TempDir() + "program_test_" + std::to_string(getpid());
};

TEST_F(ProgramTest, HelpAndVersion) {
  EXPECT_THAT(run("--version").out, StartsWith("anabranch 0."));
  const ProgramResult help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* verb : {"tokenizer", "shard", "config", "watch", "doctor"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("\n  ") + verb));
    EXPECT_EQ(run(std::string(verb) + " --help").exit_code, 0) << verb;
  }
  EXPECT_THAT(run("shard build --help").out, HasSubstr("anabranch shard build"));
}

TEST_F(ProgramTest, BadCommandLinesEnd64WithTheNearestWord) {
  const auto refused = [&](const std::string& arguments) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 64) << arguments;
    EXPECT_THAT(result.err, StartsWith("anabranch: error: "));
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(refused("tokeniser"), HasSubstr("did you mean tokenizer?"));
  EXPECT_THAT(refused("shard biuld"), HasSubstr("did you mean build?"));
  EXPECT_THAT(refused("config check x.yaml --sett a=b"), HasSubstr("did you mean --set?"));
  EXPECT_THAT(refused("zebra"), HasSubstr("; the verbs are "));
  EXPECT_THAT(refused(""), HasSubstr("anabranch --help"));
  EXPECT_THAT(refused("config check"), HasSubstr("CONFIG is required"));
  EXPECT_THAT(refused("config check x.yaml --ranks many"), HasSubstr("--ranks"));
  EXPECT_THAT(refused("tokenizer import --out t.json"), HasSubstr("give --json"));
}

TEST_F(ProgramTest, ConfigCheckPrintsWhatReadsBack) {
  write("run.yaml",
        "data: {path: d}\nmodel: {preset: gpt2-2core}\n"
        "train: {steps: 3, batch_tokens: 512}\n");
  const ProgramResult good =
      run("config check run.yaml --ranks 2 --set optim.lr=0.25 --set device=cpu");
  ASSERT_EQ(good.exit_code, 0) << good.err;
  const Config config = parse_config(good.out, "resolved.yaml");
  EXPECT_EQ(config.run.name, "run");
  EXPECT_EQ(config.optim.lr, 0.25);
  EXPECT_EQ(config.device, DeviceChoice::kCpu);
  EXPECT_EQ(run("config check run.yaml --ranks 3").exit_code, 78);
}

TEST_F(ProgramTest, BadConfigurationsEnd78) {
  write("bad.yaml", "optim:\n  lrr: 1\n");
  const ProgramResult bad = run("config check bad.yaml");
  EXPECT_EQ(bad.exit_code, 78);
  EXPECT_EQ(bad.err, "anabranch: error: bad.yaml:2: unknown key optim.lrr; nearest is optim.lr\n");
  EXPECT_EQ(run("config check none.yaml").exit_code, 78);
  EXPECT_EQ(run("config check bad.yaml --set nonsense").exit_code, 64);
  write("binary.yaml", std::string("\x00\xff\x7f", 3));
  EXPECT_EQ(run("config check binary.yaml").exit_code, 78);
}

TEST_F(ProgramTest, LauncherPicksTheBuild) {
  EXPECT_EQ(run("--version", "ANABRANCH_DEVICE=cpu").exit_code, 0);
  const ProgramResult bad = run("--version", "ANABRANCH_DEVICE=tpu");
  EXPECT_EQ(bad.exit_code, 78);
  EXPECT_THAT(bad.err, HasSubstr("device \"tpu\", must be one of auto, cpu, cuda"));
  EXPECT_EQ(run("config keys --set device=tpu").exit_code, 78);
  EXPECT_EQ(run("config keys --set=device=tpu").exit_code, 78);
}

TEST_F(ProgramTest, LauncherAloneSaysWhatIsMissing) {
  std::filesystem::copy_file(AB_PROGRAM, dir_ + "/alone");
  const std::string command = dir_ + "/alone --version > /dev/null 2> " + dir_ + "/err.txt";
  EXPECT_NE(std::system(command.c_str()), 0);
  std::ifstream in(dir_ + "/err.txt");
  const std::string err{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(err, HasSubstr("libanabranch_cpu.so"));
}

TEST_F(ProgramTest, WritingToAFullDiskEnds74) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const std::string command =
      std::string(AB_PROGRAM) + " config keys > /dev/full 2> " + dir_ + "/err.txt";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 74);
}

TEST_F(ProgramTest, DoctorReports) {
  const ProgramResult plain = run("doctor");
  EXPECT_EQ(plain.exit_code, 0) << plain.out;
  EXPECT_THAT(plain.out, HasSubstr("processor: "));
  EXPECT_THAT(run("doctor --json").out, HasSubstr("\"storage\": {"));
  EXPECT_EQ(run("doctor --dir none").exit_code, 74);
}

TEST_F(ProgramTest, WatchShowsTheRun) {
  EXPECT_EQ(run("watch none --once").exit_code, 65);
  std::filesystem::create_directory(dir_ + "/r");
  write("r/metrics.jsonl",
        "{\"type\":\"step\",\"step\":1200,\"loss\":2.5,\"tokens_per_second\":45600}\n"
        "{\"type\":\"eval\",\"step\":1200,\"validation_loss_all\":3}\nnonsense\n{\"torn");
  const ProgramResult shown = run("watch r --once");
  EXPECT_EQ(shown.out,
            "step 1.2 k  loss 2.5  45.6 k tokens/s\neval 1.2 k  validation_loss_all 3\n"
            "unreadable: nonsense\n");
  EXPECT_THAT(run("watch r --once --json").out, StartsWith("{\"type\":\"step\",\"step\":1200,"));
}

}  // namespace

}  // namespace anabranch
