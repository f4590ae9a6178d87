#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/config/config.h"
#include "tests/launch/run_program.h"
#include "tests/support/xml.h"

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
  for (const char* verb : {"tokenizer", "shard", "config", "toy", "watch", "doctor"}) {
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
  EXPECT_THAT(good.err, HasSubstr("data.path d is not on this machine; the data was not checked"));
  EXPECT_EQ(config.optim.lr, 0.25);
  EXPECT_EQ(config.device, DeviceChoice::kCpu);
  EXPECT_EQ(run("config check run.yaml --ranks 3").exit_code, 78);
  EXPECT_THAT(good.out, HasSubstr("on 2 ranks: 3 steps of"));
  EXPECT_THAT(run("config check run.yaml --set train.steps=1").out,
              HasSubstr("on 1 rank: 1 step of"));
}

TEST_F(ProgramTest, ConfigCheckCountsParametersAndMultiplyAdds) {
  write("run.yaml",
        "data: {path: d}\nmodel: {type: cmollm, preset: gpt2-85m, variant: simple}\n"
        "train: {steps: 3, batch_tokens: 1024}\n");
  // By hand: 12 layers of width 768 with 4 streams, gates of W_f, W_s and W_g, 1,024 positions.
  EXPECT_THAT(run("config check run.yaml").out,
              HasSubstr("# model with a vocabulary of 50257 (assumed): 223696176 parameters, "
                        "184312368 without embeddings; multiply-adds of a token: 208466688 in "
                        "linear maps, 14192640 in front-ends, 9446400 in attention, 232105728 in "
                        "all\n"));
  const ProgramResult good = run("config check run.yaml --vocab 1000 --json");
  ASSERT_EQ(good.exit_code, 0) << good.err;
  const auto json = nlohmann::json::parse(good.out);
  EXPECT_EQ(json["vocabulary_from"], "option");
  EXPECT_EQ(json["parameters"], 185866800);
  EXPECT_EQ(json["non_embedding_parameters"], 184312368);
  EXPECT_EQ(json["linear_macs"], 170637312);
  EXPECT_EQ(json["front_end_macs"], 14192640);
  EXPECT_EQ(json["attention_macs"], 9446400);
  EXPECT_EQ(json["macs"], 170637312 + 14192640 + 9446400);
  EXPECT_EQ(json["steps"], 3);
  EXPECT_TRUE(json["data"].is_null());
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
  // Of eval and generate; a word that they do not know they refuse themselves.
  const bool gpus = run("doctor").out.find("gpus: none") == std::string::npos;
  for (const char* option : {"--device cuda", "--device=cuda"}) {
    const ProgramResult none = run(std::string("eval none ") + option);
    EXPECT_EQ(none.exit_code, gpus ? 65 : 78) << none.err;
  }
  EXPECT_EQ(run("generate none --device cpu").exit_code, 65);
  EXPECT_EQ(run("generate none --device tpu").err,
            "anabranch: error: --device: found tpu; expected auto, cpu or cuda; nearest is cpu\n");
}

// What a machine without a GPU says when one is demanded; other findings are there too.
TEST_F(ProgramTest, ADemandForAGpuThatIsNotThereEnds78) {
  if (run("doctor").out.find("gpus: none") == std::string::npos) GTEST_SKIP() << "there is one";
  write("run.yaml",
        "model: {layers: 1, width: 8, heads: 1, context: 8}\n"
        "train: {batch_tokens: 16, micro_batch: 2, steps: 1}\ndata: {path: none}\n");
  const ProgramResult demand = run("doctor", "ANABRANCH_DEVICE=cuda");
  EXPECT_EQ(demand.exit_code, 78) << demand.out;
  EXPECT_THAT(demand.out, HasSubstr("BAD   gpus: none: "));
  const ProgramResult doctor = run("doctor run.yaml --set device=cuda");
  EXPECT_EQ(doctor.exit_code, 78) << doctor.err;
  for (const char* finding : {"BAD   device: device is cuda, but ",
                              "BAD   gpus: none: ", "ok    storage: ", "ok    ranks: "}) {
    EXPECT_THAT(doctor.out, HasSubstr(finding));
  }
  EXPECT_THAT(run("doctor run.yaml").out, HasSubstr("ok    device: cpu, auto: "));
  const ProgramResult alone = run("doctor --set device=cuda");
  EXPECT_EQ(alone.exit_code, 64);
  EXPECT_THAT(alone.err, HasSubstr("--set requires CONFIG"));
  EXPECT_THAT(run("bench step run.yaml --vocab 50 --steps 1").out, HasSubstr(", on cpu\n"));
}

// A file that no driver is, in place of it, where the program's part with CUDA is.
TEST_F(ProgramTest, ADriverThatDoesNotLoadIsNotCalledAbsent) {
  std::filesystem::create_directories(dir_ + "/driver");
  std::filesystem::copy_file(AB_PROGRAM, dir_ + "/program");
  const std::string cpu = "libanabranch_cpu.so";
  std::filesystem::create_symlink(std::filesystem::path(AB_PROGRAM).parent_path() / cpu,
                                  dir_ + "/" + cpu);
  write("libanabranch_cuda.so", "");
  const auto note = [&] {
    const std::string command = "LD_LIBRARY_PATH=" + dir_ + "/driver " + dir_ +
                                "/program doctor > /dev/null 2> " + dir_ + "/err.txt";
    (void)std::system(command.c_str());
    std::ifstream in(dir_ + "/err.txt");
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  write("driver/libcuda.so.1", "short");
  EXPECT_THAT(note(), testing::AllOf(HasSubstr("the CUDA driver does not load: "),
                                     HasSubstr("driver/libcuda.so.1: file too short")));
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

TEST_F(ProgramTest, ToyClustersMeasuresDrawsAndChecks) {
  write("toy.yaml", "seeds: 2\n");
  const ProgramResult good = run("toy clusters toy.yaml --out made");
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("<= 0.01 for all seeds: holds"));
  const auto read = [&](const std::string& name) {
    std::ifstream in(dir_ + "/made/" + name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(test::xml_problem(read("boundary.svg")), "");
  const auto results = nlohmann::json::parse(read("results.json"));
  EXPECT_EQ(results["config"]["seeds"], 2);
  EXPECT_EQ(results["mixed"]["test_errors"].size(), 2U);
  EXPECT_EQ(results["mixed"]["check"]["within"], true);
  EXPECT_EQ(run("toy clusters toy.yaml --json").out, read("results.json"));
}

TEST_F(ProgramTest, ToyClustersRefusesAndFails) {
  write("toy.yaml", "seeds: 2\n");
  const ProgramResult unknown = run("toy clusters toy.yaml --set data.sgima=1");
  EXPECT_EQ(unknown.exit_code, 78);
  EXPECT_THAT(unknown.err, HasSubstr("unknown key data.sgima; nearest is data.sigma"));
  const ProgramResult other = run("toy clusters toy.yaml --set train.steps=1");
  EXPECT_EQ(other.exit_code, 0) << "nothing is known of one step";
  EXPECT_THAT(other.out, Not(HasSubstr("for all seeds")));
  EXPECT_EQ(run("toy clusters none.yaml").exit_code, 78);
  EXPECT_EQ(run("toy").exit_code, 64);
  if (std::filesystem::exists("/dev/null")) {
    EXPECT_EQ(run("toy clusters toy.yaml --out /dev/null/x").exit_code, 74);
  }
}

TEST_F(ProgramTest, ConfigGetPrintsValuesForScripts) {
  const std::string file = std::string(AB_SOURCE_DIR) + "/configs/gpt2-2core.yaml";
  const ProgramResult got = run("config get " + file + " run.dir schema --set run.dir=a/b");
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(got.out, "a/b\n1\n");
  EXPECT_EQ(run("config get " + file + " run.dri").exit_code, 64);
  EXPECT_EQ(run("config get " + file + " run").exit_code, 64);
  EXPECT_EQ(run("config get " + file + " run.dir --set run.dri=x").exit_code, 78);
}

TEST_F(ProgramTest, DoctorReports) {
  const ProgramResult plain = run("doctor");
  EXPECT_EQ(plain.exit_code, 0) << plain.out;
  EXPECT_THAT(plain.out, HasSubstr("processor: "));
  EXPECT_THAT(plain.out, HasSubstr("gpus: "));
  EXPECT_THAT(run("doctor --json").out, HasSubstr("\"storage\": {"));
  EXPECT_EQ(run("doctor --dir none").exit_code, 74);
}

// A whole line of a step.
std::string step_line(const std::string& more = "") {
  return "{\"type\":\"step\",\"step\":1200,\"tokens_total\":4800,\"loss\":2.5,"
         "\"learning_rate\":0.001,\"gradient_norm\":0.9,\"step_seconds\":2,"
         "\"tokens_per_second\":45600" +
         more + "}\n";
}

TEST_F(ProgramTest, WatchShowsTheRunAsTrainDoes) {
  EXPECT_EQ(run("watch none --once").exit_code, 65);
  std::filesystem::create_directory(dir_ + "/r");
  write("r/metrics.jsonl",
        step_line() + step_line(",\"mfu_ratio\":0.31,\"skipped\":\"outlier\"") +
            "{\"type\":\"eval\",\"step\":1200,\"source\":\"all\",\"validation_loss\":3,"
            "\"validation_perplexity\":20.1,\"validation_bpb\":1.5,\"tokens\":100,\"seconds\":2}\n"
            "{\"type\":\"save\",\"step\":1200,\"checkpoint_duration_seconds\":1.5,"
            "\"checkpoint_pause_seconds\":0.25,\"checkpoint_bytes\":1048576}\n"
            "{\"type\":\"save\",\"step\":1200,\"error\":\"disk full\"}\n"
            "{\"type\":\"event\",\"kind\":\"stop\",\"text\":\"stopped\"}\n{\"torn");
  const ProgramResult shown = run("watch r --once");
  EXPECT_EQ(shown.out,
            "step 1200  loss 2.5000  lr 0.001  norm 0.900  45.6 k tokens/s\n"
            "step 1200 skipped: outlier (loss 2.5, gradient norm 0.9)\n"
            "step 1200  loss 2.5000  lr 0.001  norm 0.900  45.6 k tokens/s  mfu 31.0%\n"
            "step 1200  validation: loss 3.0000  perplexity 20.10  bits/byte 1.5000  (100 tokens, "
            "2.0 s)\n"
            "step 1200  saved 1.0 MiB a rank in 1.50 s, training paused 0.250 s\n"
            "step 1200  SAVE FAILED: disk full; training goes on; older checkpoints are untouched\n"
            "stop: stopped\n");
  EXPECT_EQ(shown.err, "");
  EXPECT_THAT(run("watch r --once --json").out, StartsWith("{\"type\":\"step\",\"step\":1200,"));

  write("r/config.yaml",
        "data: {path: d}\nmodel: {preset: gpt2-2core}\ntrain: {steps: 1260, batch_tokens: 512}\n");
  write("r/metrics.jsonl", step_line());
  EXPECT_EQ(run("watch r --once").out,
            "step 1200/1260  loss 2.5000  lr 0.001  norm 0.900  45.6 k tokens/s  2:00 left\n");
}

TEST_F(ProgramTest, WatchTellsALossThatSeesTheFuture) {
  std::filesystem::create_directory(dir_ + "/r");
  write("r/metrics.jsonl",
        "{\"type\":\"mixture\",\"step\":1200,\"auxiliary_loss\":0.5,"
        "\"stream_load\":[[0.25,0.75],[]],\"effective_streams\":[1.5,null]}\n"
        "{\"type\":\"eval\",\"step\":1200,\"looks_ahead\":true,\"source\":\"all\","
        "\"validation_loss_looking_ahead\":3,\"tokens\":100,\"seconds\":2}\n");
  const ProgramResult shown = run("watch r --once");
  EXPECT_EQ(shown.out,
            "step 1200  validation looking ahead: loss 3.0000  (sees the future: no headline "
            "figure; 100 tokens, 2.0 s)\n");
  EXPECT_EQ(shown.err, "");
}

TEST_F(ProgramTest, WatchSkipsAndCountsOddLines) {
  std::filesystem::create_directory(dir_ + "/r");
  std::string odd;
  for (const char* line :
       {"{\"type\":5}", "{\"type\":\"step\",\"step\":3,\"loss\":2", "nonsense", "[]", "{}", "",
        "{\"type\":\"step\"}", "{\"type\":\"step\",\"step\":\"x\"}", "{\"type\":\"other\"}", "\xff",
        "{\"type\":\"event\",\"kind\":1,\"text\":[]}", "{\"type\":\"save\",\"step\":-1}",
        "{\"type\":\"mixture\"}", "{\"type\":\"eval\",\"looks_ahead\":1}"}) {
    odd += std::string(line) + "\n";
  }
  write("r/metrics.jsonl", odd + step_line(",\"mfu_ratio\":null"));
  const ProgramResult shown = run("watch r --once");
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, StartsWith("step 1200  loss 2.5000"));
  EXPECT_THAT(shown.err, HasSubstr("skipped 14 lines that no run writes"));
  write("r/metrics.jsonl", std::string(1 << 20, 'x') + "\n");
  const ProgramResult one = run("watch r --once");
  EXPECT_THAT(one.err, HasSubstr("skipped 1 line that no run writes"));
  EXPECT_LT(one.err.size(), 300U);
}

}  // namespace

}  // namespace anabranch
