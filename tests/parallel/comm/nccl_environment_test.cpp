#include "parallel/comm/nccl_environment.h"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using testing::ElementsAre;

// "NAME=value (origin)" of the variables that a test may set.
std::vector<std::string> texts(const std::vector<NcclVariable>& variables) {
  std::vector<std::string> all;
  all.reserve(variables.size());
  for (const NcclVariable& v : variables)
    all.push_back(v.name + "=" + v.value + " (" + v.origin + ")");
  return all;
}

class NcclEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
    file_ = (dir_.path() / "nccl.conf").string();
    setenv("NCCL_CONF_FILE", file_.c_str(), 1);
  }

  void TearDown() override {
    for (const char* name : kNames) unsetenv(name);
  }

  static constexpr const char* kNames[] = {"NCCL_ALGO", "NCCL_CONF_FILE", "NCCL_DEBUG",
                                           "NCCL_DEBUG_FILE", "NCCL_IB_TIMEOUT"};
  test::TempDir dir_;
  std::string file_;
};

TEST_F(NcclEnvironment, SetsLittle) {
  EXPECT_THAT(
      texts(set_nccl_environment("")),
      ElementsAre("NCCL_ALGO=Ring (anabranch)", "NCCL_CONF_FILE=" + file_ + " (environment)"));
  unsetenv("NCCL_ALGO");
  EXPECT_THAT(
      texts(set_nccl_environment("/logs")),
      ElementsAre("NCCL_ALGO=Ring (anabranch)", "NCCL_CONF_FILE=" + file_ + " (environment)",
                  "NCCL_DEBUG=WARN (anabranch)",
                  "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log (anabranch)"));
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
}

TEST_F(NcclEnvironment, LeavesWhatTheUserSets) {
  setenv("NCCL_DEBUG", "INFO", 1);
  std::ofstream(file_) << "# of this site\nNCCL_ALGO=Tree\nNCCL_DEBUG=TRACE\nNCCL_IB_TIMEOUT=22\n";
  EXPECT_THAT(
      texts(set_nccl_environment("/logs")),
      ElementsAre("NCCL_ALGO=Tree (" + file_ + ")", "NCCL_CONF_FILE=" + file_ + " (environment)",
                  "NCCL_DEBUG=INFO (environment)",
                  "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log (anabranch)",
                  "NCCL_IB_TIMEOUT=22 (" + file_ + ")"));
  EXPECT_EQ(std::getenv("NCCL_ALGO"), nullptr);
}

}  // namespace
}  // namespace anabranch
