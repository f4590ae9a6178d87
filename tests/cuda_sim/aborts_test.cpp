// Aborts that hang, as what they are to end does.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <nccl.h>

#include "tests/cuda_sim/sim.h"
#include "tests/data/folder.h"
#include "tests/parallel/comm/gpu_ranks.h"
#include "tests/parallel/comm/group_checks.h"
#include "tests/support/ranks.h"

namespace anabranch::cuda_sim {
namespace {

using test::exact;
using test::expect_error;
using test::run_on_gpus;
using test::TestDevice;

void await(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

// A rank that fails lets go of what it has under way, as far as it can, before it says why.
TEST(HungAborts, HoldUpNoError) {
  std::atomic<bool> over = false;
  run_on_gpus(2, [&](Group& g, const TestDevice& on) {
    if (g.rank() == 1) return await(over);
    const Tensor x = on.place(exact({5}, DType::kF32, 0));
    const Work work = g.all_reduce_sum(x);
    hang_aborts(true);
    break_network(0);
    expect_error(Fault::kPeer, {"all_reduce_sum #", "network error"}, [&] { g.all_reduce_sum(x); });
    EXPECT_THROW(g.all_reduce_sum(x), Error);
    EXPECT_THROW(work.wait(), Error);
    hang_aborts(false);  // what ranks share is only left when it is over
    over = true;
  });
}

// Rank 1 does not come to the start.
TEST(HungAborts, HoldUpNoStart) {
  std::atomic<bool> over = false;
  run_on_threads(2, [&](Group& world) {
    world.set_deadline(0.2);
    auto host = world.split(0, world.rank());
    if (world.rank() == 1) {
      host->broadcast(Tensor({NCCL_UNIQUE_ID_BYTES}, DType::kU8), 0).wait();
      return await(over);
    }
    hang_aborts(true);
    expect_error(Fault::kPeer, {"the start of a communicator of 2 ranks on rank 0 of 2"}, [&] {
      device_group(std::move(host), {Device::Kind::kCuda, 0});
    });
    hang_aborts(false);
    over = true;
  });
}

}  // namespace
}  // namespace anabranch::cuda_sim
