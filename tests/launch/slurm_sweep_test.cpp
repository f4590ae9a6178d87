// `anabranch sweep run --slurm` on a small cluster.
#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/data/folder.h"
#include "tests/launch/slurm_job.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SlurmSweep : public Slurm {
 protected:
  // `anabranch ARGUMENTS` in this test's folder, where the cluster's commands are, or are not.
  Ended sweep(const std::string& arguments, const std::string& environment = "") {
    return on_cluster({"bash", "-c", command(arguments, environment)});
  }

  std::string command(const std::string& arguments, const std::string& environment) {
    return join("cd ", path("").string(), " && AB_SITE=", path("site.env").string(), " ",
                environment, " exec ", AB_PROGRAM, " ", arguments);
  }

  // A sweep of six runs; `point` has what differs of each, in YAML.
  void write_sweep(const std::function<std::string(int)>& point) {
    std::ofstream(path("base.yaml")) << "data: {path: " << data().string() << "}\n"
                                     << "model: {preset: gpt2-85m}\n"
                                     << "train: {steps: 30, batch_tokens: 1024}\n";
    std::ofstream out(path("s.yaml"));
    out << "base: base.yaml\nvocabulary: 300\nfamily: g\nseeds: [1]\nname: \"g{n}\"\nlist:\n";
    for (int n = 0; n < 6; ++n) out << "  - {n: " << n << point(n) << "}\n";
  }

  nlohmann::json status(const std::string& environment = "") {
    const Ended end = sweep("sweep status runs/s-tiny --json", environment);
    EXPECT_EQ(end.exit_code, 0) << end.output;
    return nlohmann::json::parse(end.output);
  }

  int count(const std::string& state, const std::string& environment = "") {
    return status(environment).at("totals").at(state);
  }

  static std::string run(int n) { return join("runs/s-tiny/g", n, "-s1"); }
};

TEST_F(SlurmSweep, SixRunsOfWhichOneFails) {
  bring_up(3);
  write_sweep([](int n) { return n == 3 ? ", data.path: nowhere" : ""; });
  const Ended submitted =
      sweep("sweep run s.yaml --scale tiny --slurm --at-once 3 -- --output=slurm-%j.out");
  EXPECT_EQ(submitted.exit_code, 0) << submitted.output;
  EXPECT_THAT(submitted.output, HasSubstr("submitted 6 runs as job "));
  ASSERT_TRUE(test::soon([&] { return count("done") == 5 && count("failed") == 1; }))
      << status().dump(1);
  const nlohmann::json failed = status().at("runs")[3];
  EXPECT_EQ(failed.at("state"), "failed");
  EXPECT_EQ(failed.at("exit_code"), 65);
  EXPECT_THAT(failed.at("last_line"), HasSubstr("nowhere has no dataset.json"));
  EXPECT_THAT(sweep("sweep status runs/s-tiny").output,
              HasSubstr("g3-s1 failed, exit code 65: bad data\n    anabranch: error: rank 0 on "));
  // It is not tried again by itself.
  const Ended again = sweep("sweep run s.yaml --scale tiny --slurm");
  EXPECT_EQ(again.exit_code, 65);
  EXPECT_THAT(again.output, HasSubstr("nothing to submit"));
  for (int n = 0; n < 6; ++n) EXPECT_EQ(attempts(run(n), "begin").size(), 1U) << n;
}

TEST_F(SlurmSweep, TwoSubmittersAtOnceRunNothingTwice) {
  bring_up(1);
  write_sweep([](int) { return ""; });
  for (int n = 0; n < 6; ++n) {
    fs::create_directories(path(run(n)));
    std::ofstream(path(run(n)) / "script") << (n == 0 ? "wait 1\n0 2\n" : "0 2\n");
  }
  const std::string fake =
      "AB_LAUNCHER=srun AB_PROGRAM=" AB_SOURCE_DIR "/tests/support/fake_program.sh";
  const std::string submit =
      "sweep run s.yaml --scale tiny --slurm --at-once 1 -- --output=slurm-%j.out";
  const Ended both = on_cluster(
      {"bash", "-c", join("(", command(submit, fake), ") & (", command(submit, fake), ") & wait")});
  EXPECT_THAT(both.output, HasSubstr("submitted 6 runs as job "));
  EXPECT_THAT(both.output, HasSubstr("nothing to submit"));
  ASSERT_TRUE(test::soon([&] { return fs::exists(path(run(0)) / "waiting"); }));
  EXPECT_EQ(count("running"), 1);
  EXPECT_EQ(count("queued"), 5);
  EXPECT_EQ(status().at("runs")[5].at("job").get<std::string>().back(), '5');

  // Neither here nor where the queue cannot be asked is one of them begun again.
  const Ended here = sweep("sweep run s.yaml --scale tiny", fake);
  EXPECT_EQ(here.exit_code, 0) << here.output;
  fs::create_directories(path("bin"));
  fs::create_symlink("/bin/false", path("bin/squeue"));
  const std::string no_queue = "PATH=" + path("bin").string() + ":$PATH";
  const Ended blind = sweep("sweep run s.yaml --scale tiny", fake + " " + no_queue);
  EXPECT_THAT(blind.output, HasSubstr("what was submitted to SLURM counts as queued"));
  EXPECT_EQ(count("queued", no_queue), 5);

  on_cluster({"scancel", "--batch", "--signal=USR1", status().at("runs")[0].at("job")});
  ASSERT_TRUE(test::soon([&] { return count("done") == 6; })) << status().dump(1);
  EXPECT_THAT(codes(run(0)), testing::ElementsAre(75, 0));
  for (int n = 1; n < 6; ++n) EXPECT_EQ(attempts(run(n), "begin").size(), 1U) << n;
}

}  // namespace
}  // namespace anabranch
