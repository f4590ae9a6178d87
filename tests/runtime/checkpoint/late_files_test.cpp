#include "runtime/checkpoint/late_files.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/data/folder.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

TEST(LateFiles, AreWaitedForAndNotForever) {
  const test::TempDir dir;
  std::thread other([&] {
    test::pause_for(0.2);
    test::spill(dir / "late", "");
  });
  EXPECT_TRUE(wait_for_file(dir / "late"));
  other.join();
  EXPECT_FALSE(wait_for_file(dir / "never", 0.1));
}

// What all see alike, and what nobody sees, costs no wait.
TEST(LateFiles, RanksThatSeeTheSameDoNotWait) {
  const test::TempDir dir;
  test::spill(dir / "a", "");
  test::spill(dir / "b", "");
  const auto tell = [](const std::string& text) { ADD_FAILURE() << text; };
  run_on_threads(4, [&](Group& world) {
    wait_until_all_see(dir.path(), world, tell);
    wait_until_all_see(dir / "nowhere", world, tell);
  });
}

}  // namespace
}  // namespace anabranch
