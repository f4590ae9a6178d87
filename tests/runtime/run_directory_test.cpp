#include "runtime/run_directory.h"

#include <fstream>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

TEST(RunDirectory, IsOneJobsAlone) {
  const test::TempDir dir;
  {
    const RunDirectory first(dir / "run", true);
    try {
      const RunDirectory second(dir / "run", true);
      FAIL() << "two jobs hold one directory";
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kIo);
      EXPECT_NE(std::string(error.what()).find("process"), std::string::npos) << error.what();
    }
    const RunDirectory other_rank(dir / "run", false);
  }
  const RunDirectory next(dir / "run", true);
}

TEST(RunDirectory, TargetsOfDeadRunsAreReaped) {
  const test::TempDir dir;
  const RunDirectory alive(dir / "alive", true);
  { const RunDirectory dead(dir / "dead", true); }
  std::filesystem::create_directory(dir / "other");  // no run: it never had a lock
  for (const char* run : {"alive", "dead", "other"}) {
    std::ofstream(dir / run / "targets.json") << "[]";
  }
  std::ofstream(dir / "file") << "x";
  EXPECT_EQ(reap_stale_targets(dir.path()), 1);
  EXPECT_TRUE(std::filesystem::exists(dir / "alive/targets.json"));
  EXPECT_FALSE(std::filesystem::exists(dir / "dead/targets.json"));
  EXPECT_TRUE(std::filesystem::exists(dir / "other/targets.json"));
  EXPECT_EQ(reap_stale_targets(dir.path()), 0);
  EXPECT_EQ(reap_stale_targets(dir / "nowhere"), 0);
  const RunDirectory again(dir / "dead", true);  // it is not held on to
}

TEST(RunDirectory, AFileWhereItShouldBeIsAnError) {
  const test::TempDir dir;
  std::ofstream(dir / "run") << "x";
  try {
    const RunDirectory run(dir / "run", true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kIo);
  }
}

TEST(RunDirectory, TriggerFilesAreTakenOnce) {
  const test::TempDir dir;
  const RunDirectory run(dir / "run", true);
  EXPECT_EQ(run.take_trigger(), StopKind::kNone);
  std::ofstream(dir / "run/save") << "";
  EXPECT_EQ(run.take_trigger(), StopKind::kSave);
  EXPECT_EQ(run.take_trigger(), StopKind::kNone);
  std::ofstream(dir / "run/stop") << "";
  std::ofstream(dir / "run/save") << "";
  EXPECT_EQ(run.take_trigger(), StopKind::kInterrupt);
  EXPECT_EQ(run.take_trigger(), StopKind::kNone);
}

TEST(RunDirectory, KnowsItsSweepAndWherePrometheusLooks) {
  const test::TempDir dir;
  const RunDirectory alone(dir / "alone/", true);
  EXPECT_TRUE(alone.sweep().empty());
  EXPECT_EQ(alone.discovery(), dir / "targets/alone.json");
  const RunDirectory run(dir / "sizes/a-s1", true);
  EXPECT_TRUE(run.sweep().empty()) << "the directory above has no record";
  std::ofstream(dir / "sizes/sweep.json") << "{}";
  EXPECT_EQ(run.sweep(), dir / "sizes");
  EXPECT_EQ(run.discovery(), dir / "targets/sizes.a-s1.json");
}

TEST(StopRequest, KeepsTheStrongest) {
  StopRequest stop;
  stop.raise(StopKind::kInterrupt);
  stop.raise(StopKind::kRequeue);
  EXPECT_EQ(stop.pending(), StopKind::kInterrupt);
}

}  // namespace
}  // namespace anabranch
