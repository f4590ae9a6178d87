// `doctor` over the ranks of a job: what it finds, and what it ends with.
#include <fstream>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/launch/train_job.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class Doctor : public TrainJobs {
 protected:
  // `doctor` on the run of this test by ranks, each with variables of its own ("NAME=value").
  Ended doctor(const std::vector<std::vector<std::string>>& ranks,
               const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> words{"mpirun", "--oversubscribe", "--bind-to", "none"};
    for (const auto& variables : ranks) {
      if (words.size() > 4) words.emplace_back(":");
      words.insert(words.end(), {"-np", "1", "env"});
      words.insert(words.end(), variables.begin(), variables.end());
      words.insert(words.end(), {AB_PROGRAM, "doctor", path("run.yaml").string(),
                                 "--set=run.dir=" + path("run/new").string(),
                                 "--set=data.path=" + data().string(), "--set=train.steps=9"});
      words.insert(words.end(), arguments.begin(), arguments.end());
    }
    test::Process job(words, path(join("doctor-", ++calls_, ".txt")).string(),
                      {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                       {"OMPI_MCA_mpi_yield_when_idle", "1"}});
    return finish(job);
  }

  // The same by two ranks with calls that fail.
  Ended doctor_with_faults(const std::string& faults) {
    const std::vector<std::string> variables = {join("LD_PRELOAD=", AB_FAULTS),
                                                "AB_FAULTS=" + faults};
    return doctor({variables, variables});
  }

  static bool can_fault() { return !std::string(AB_FAULTS).empty(); }

 private:
  int calls_ = 0;
};

TEST_F(Doctor, SpeaksOnceOfAllRanks) {
  const Ended end = doctor({{}, {}});
  EXPECT_EQ(end.exit_code, 0) << end.output;
  for (const char* part : {"ok    ranks: 2 on 1 host: ", "ok    clocks: within ", "ok    storage: ",
                           "ok    shared: ", "is one for all ranks", "ok    collectives: a sum"}) {
    const size_t at = end.output.find(part);
    ASSERT_NE(at, std::string::npos) << part << end.output;
    EXPECT_EQ(end.output.find(part, at + 1), std::string::npos) << part;
  }
  EXPECT_FALSE(std::filesystem::exists(path("run")));  // it makes nothing
  for (const auto& left : std::filesystem::directory_iterator(path(""))) {
    EXPECT_THAT(left.path().string(), testing::Not(HasSubstr(".doctor")));
  }
}

TEST_F(Doctor, ARunThatDoesNotSuitTheRanksIsRefusedAsTrainDoes) {
  const Ended end = doctor({{}, {}, {}});
  EXPECT_EQ(end.exit_code, 78) << end.output;
  EXPECT_THAT(end.output, HasSubstr("train.batch_tokens"));
}

TEST_F(Doctor, AJobThatIsAboutToEndIsRefused) {
  const auto ends_in = [](int seconds) {
    return join("SLURM_JOB_END_TIME=", std::time(nullptr) + seconds);
  };
  const Ended soon = doctor({{ends_in(10)}, {}});
  EXPECT_EQ(soon.exit_code, 78) << soon.output;
  EXPECT_THAT(soon.output, testing::ContainsRegex("BAD   time: 0 min [0-9]+ s left, too little"));
  const Ended later = doctor({{ends_in(3600)}, {}});
  EXPECT_EQ(later.exit_code, 0) << later.output;
  EXPECT_THAT(later.output, HasSubstr("ok    time: 59 min "));
}

TEST_F(Doctor, ADiskThatDoesNotTakeACheckpointIsRefused) {
  if (!can_fault()) GTEST_SKIP() << "no faults in sanitizer builds";
  const Ended end = doctor_with_faults("0@sync:.doctor-:*:error=28");
  EXPECT_EQ(end.exit_code, 74) << end.output;
  EXPECT_THAT(end.output, testing::ContainsRegex("BAD   storage: .*No space left on device"));
}

TEST_F(Doctor, AFolderThatARankDoesNotSeeIsRefused) {
  if (!can_fault()) GTEST_SKIP() << "no faults in sanitizer builds";
  const Ended end = doctor_with_faults("1@stat:.doctor-shared:*:late=60000");
  EXPECT_EQ(end.exit_code, 74) << end.output;
  EXPECT_THAT(end.output, testing::ContainsRegex("BAD   shared: .*: rank 1 on .* does not see"));
}

TEST_F(Doctor, AClockThatIsOffIsNamed) {
  if (!can_fault()) GTEST_SKIP() << "no faults in sanitizer builds";
  std::ofstream(path("off")) << "-40";
  const Ended end =
      doctor({{}, {join("LD_PRELOAD=", AB_FAULTS), "AB_FAULTS_CLOCK=" + path("off").string()}});
  EXPECT_EQ(end.exit_code, 78) << end.output;
  EXPECT_THAT(end.output,
              testing::ContainsRegex("BAD   clocks: that of rank 1 on .* is (39.9|40.0) s behind"));
}

}  // namespace
}  // namespace anabranch
