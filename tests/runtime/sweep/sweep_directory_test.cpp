#include "runtime/sweep/sweep_directory.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class SweepDirectoryTest : public testing::Test {
 protected:
  SweepDirectoryTest() : directory_(dir_ / "runs") {
    std::ofstream(dir_ / "base.yaml")
        << "data: {path: d}\nmodel: {type: gpt2, layers: 2, width: 64, heads: 2, context: 32}\n"
           "train: {steps: 30, batch_tokens: 1024}\n";
  }

  void submit(const std::string& points, const std::vector<std::string>& sets = {}) {
    const std::string path = (dir_ / "s.yaml").string();
    const SweepOptions options{.sets = sets};
    const SweepFile file =
        parse_sweep("base: base.yaml\nvocabulary: 300\nfamily: g\n" + points, path);
    directory_.submit(expand_sweep(file, options), options, {"built yesterday"});
  }

  std::string refusal(const std::string& points, const std::vector<std::string>& sets = {}) {
    return test::refusal([&] { submit(points, sets); });
  }

  const test::TempDir dir_;
  const SweepDirectory directory_;
};

constexpr const char* kFirst = "seeds: [1]\ngrid: {optim.lr: [1e-3, 2e-3]}\n";

TEST_F(SweepDirectoryTest, MayGrow) {
  submit(kFirst);
  EXPECT_EQ(read_record(directory_.path().string()).runs.size(), 2U);
  submit(kFirst);
  submit("seeds: [1, 2]\ngrid: {optim.lr: [1e-3, 2e-3, 3e-3]}\n");
  EXPECT_EQ(read_record(directory_.path().string()).runs.size(), 6U);
  submit("seeds: [1, 2]\ngrid: {optim.lr: [1e-3, 2e-3, 3e-3]}\nset: {train.steps: 60}\n");
  EXPECT_EQ(read_record(directory_.path().string()).points[0].steps, 60);
}

TEST_F(SweepDirectoryTest, MayNotTurnIntoAnotherSweep) {
  submit(kFirst);
  EXPECT_THAT(refusal("seeds: [1]\ngrid: {optim.lr: [1e-3]}\n"),
              HasSubstr("g-lr2e-3-s1 is not in the file any more"));
  EXPECT_THAT(refusal(kFirst, {"model.width=32"}),
              HasSubstr("g-lr1e-3-s1: model.width was \"64\", is \"32\""));
  EXPECT_THAT(refusal(kFirst, {"train.steps=20"}),
              HasSubstr("train.steps was \"30\", is \"20\""));  // shorter
  EXPECT_EQ(read_record(directory_.path().string()).points[0].width, 64);
}

TEST_F(SweepDirectoryTest, OneRunIsOneSubmittersAlone) {
  const auto claim = directory_.take_claim("a");
  EXPECT_TRUE(claim);
  EXPECT_FALSE(directory_.take_claim("a"));
  EXPECT_TRUE(directory_.take_claim("b"));
  EXPECT_THAT(lock_holder(directory_.claim("a")), HasSubstr("process"));
}

}  // namespace
}  // namespace anabranch
