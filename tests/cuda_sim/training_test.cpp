// Whole training runs on simulated GPUs, against the same on the CPU.
#include "tests/runtime/training.h"

#include <gtest/gtest.h>

#include "tests/cuda_sim/sim.h"

namespace anabranch {
namespace {

constexpr Device kGpu{Device::Kind::kCuda, 0};

class SimTraining : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  void expect_as_on_cpu(const std::function<void(Config&)>& set) {
    Config config = folder_.config("cpu", 4);
    set(config);
    const std::vector<double> want = test::run_training(config).losses();
    config.run.dir = (folder_ / "gpu").string();
    const uint64_t before = cuda_sim::counters().kernels;
    const std::vector<double> got = test::run_training(config, {.device = kGpu}).losses();
    EXPECT_GT(cuda_sim::counters().kernels, before);
    test::expect_close(got, want, "GPU");
  }

  test::TrainingFolder folder_;
};

TEST_F(SimTraining, Gpt2) {
  expect_as_on_cpu([](Config&) {});
}

}  // namespace
}  // namespace anabranch
