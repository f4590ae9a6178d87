// Any file of the newest checkpoint damaged in any way: named, passed over, and nothing is lost but
// the steps since the one before. On four ranks.
#include <gtest/gtest.h>

#include "tests/data/folder.h"
#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

struct Damage {
  const char* name;
  void (*make)(const fs::path& file);
};

void turn_bit(const fs::path& file) {
  std::string bytes = test::slurp(file);
  char& byte = bytes[bytes.size() - 9];  // the end of a tensor, or of the manifest
  byte = static_cast<char>(byte ^ 2);
  test::spill(file, bytes);
}

const Damage kDamages[] = {
    {"cut in half", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); }},
    {"empty", [](const fs::path& file) { fs::resize_file(file, 0); }},
    {"zeroed",
     [](const fs::path& file) { test::spill(file, std::string(fs::file_size(file), '\0')); }},
    {"gone", [](const fs::path& file) { fs::remove(file); }},
    {"a bit turned", turn_bit}};

TEST(TrainerDamage, AnyFileOfTheNewestCheckpoint) {
  constexpr int kRanks = 4;
  constexpr int64_t kSteps = 8;
  const test::TrainingFolder folder;
  Config config = folder.config("whole", kSteps);
  config.checkpoint.every_steps = 4;
  test::run_training(config, {.ranks = kRanks});
  const auto want = test::checkpoint_state(config.run.dir, kSteps);
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(test::checkpoints_of(config.run.dir).at(kSteps))) {
    names.push_back(item.path().filename());
  }
  ASSERT_EQ(names.size(), 1U + kRanks);  // the manifest and a file of each rank
  int done = 0;
  for (const std::string& name : names) {
    for (const Damage& damage : kDamages) {
      SCOPED_TRACE(name + " is " + damage.name);
      Config again = config;
      again.run.dir = (folder / join("run-", done++)).string();
      fs::copy(config.run.dir, again.run.dir, fs::copy_options::recursive);
      damage.make(test::checkpoints_of(again.run.dir).at(kSteps) / name);
      const test::Training run = test::run_training(again, {.ranks = kRanks});
      ASSERT_EQ(run.codes, std::vector<int>(kRanks, 0));
      ASSERT_GE(run.events.size(), 2U);
      EXPECT_THAT(run.events[0], testing::HasSubstr("step-00000008 is passed over"));
      EXPECT_THAT(run.events[0], testing::HasSubstr(name));
      EXPECT_THAT(run.events.back(), testing::HasSubstr("resumed at step 4"));
      EXPECT_EQ(test::checkpoint_state(again.run.dir, kSteps), want);
      fs::remove_all(again.run.dir);
    }
  }
  RecordProperty("damages", std::to_string(done));
}

}  // namespace
}  // namespace anabranch
