// A job's ranks on the GPUs of one host.
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/tensor/element.h"
#include "runtime/device_choice.h"
#include "tests/cuda_sim/sim.h"

namespace anabranch {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class SimJob : public testing::Test {
 protected:
  void TearDown() override { cuda_sim::options().devices = cuda_sim::Options{}.devices; }
};

TEST_F(SimJob, GpusAreDescribed) {
  cuda_sim::options().devices = 3;
  const GpuSight sight = see_gpus();
  ASSERT_EQ(sight.gpus.size(), 3U);
  EXPECT_EQ(sight.gpus[2].name, "simulated GPU");
  EXPECT_EQ(sight.gpus[2].id, "GPU-73696d00-0000-0000-0000-000000000002");
  EXPECT_EQ(sight.gpus[2].pci, "0000:02:00.0");
  EXPECT_EQ(sight.gpus[2].memory, static_cast<int64_t>(cuda_sim::options().device_bytes));
  EXPECT_EQ(sight.gpus[2].major, 8);
  EXPECT_EQ(sight.runtime, 13000);
  cuda_sim::options().devices = 0;
  EXPECT_THAT(see_gpus().gpus, IsEmpty());
  EXPECT_THAT(see_gpus().why_none, HasSubstr("CUDA finds no GPU: "));
}

// Each rank's tensors are on the GPU of its local rank, beside the others'.
TEST_F(SimJob, RanksTakeAGpuEach) {
  cuda_sim::options().devices = 3;
  run_on_threads(3, [](Group& group) {
    const Topology places = find_topology(group);
    const DevicePlan plan = choose_devices({DeviceChoice::kAuto, true}, see_gpus(), places, group);
    EXPECT_EQ(plan.text(), "cuda, auto: every rank has a GPU; 3 simulated GPU");
    EXPECT_EQ(plan.mine, (Device{Device::Kind::kCuda, group.rank()}));
    EXPECT_THAT(plan.warnings, IsEmpty());
    const auto pool = std::make_shared<Pool>(plan.mine);
    const Tensor there = Tensor::of<float>({1}, {0.5F}).copy_in(pool);
    EXPECT_EQ(there.device(), plan.mine);
    EXPECT_EQ(cuda_sim::allocated_bytes(), static_cast<size_t>(pool->reserved()));
    EXPECT_EQ(element(there), 0.5);
  });
}

TEST_F(SimJob, MoreRanksThanGpusAreRefused) {
  cuda_sim::options().devices = 2;
  const auto four = [](Group& group) {
    (void)choose_devices({DeviceChoice::kCuda, true}, see_gpus(), find_topology(group), group);
  };
  EXPECT_THROW(run_on_threads(4, four), Error);
}

}  // namespace
}  // namespace anabranch
