// The simulated NCCL shows what a GPU would do to calls that do not fit.
#include <thread>

#include <gmock/gmock.h>
#include <nccl.h>

#include "tests/cuda_sim/device_buffer.h"
#include "tests/cuda_sim/sim.h"

namespace anabranch::cuda_sim {
namespace {

using testing::HasSubstr;

ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) {
      return asked;
    }
    std::this_thread::yield();
  }
  return state;
}

// Two ranks, each a thread with a device, a communicator, and a stream.
template <class F>
void on_two(const F& body) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const auto rank_main = [&](int rank) {
    cudaSetDevice(rank);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
    {
      const TestStream stream;
      body(rank, comm, stream.get());
    }
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    settled(comm);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
  cudaSetDevice(0);
}

std::string take_both() {
  cudaSetDevice(1);
  std::string faults = take_fault();
  cudaSetDevice(0);
  return take_fault() + faults;
}

TEST(SimulatedNccl, SumsWhatBothHave) {
  for_each_schedule(3, [](const std::string& name) {
    on_two([&](int rank, ncclComm_t comm, cudaStream_t stream) {
      const DeviceBuffer<float> x(stream, ramp(10));
      ncclAllReduce(x.get(), x.get(), 10, ncclFloat32, ncclSum, comm, stream);
      EXPECT_EQ(settled(comm), ncclSuccess);
      EXPECT_EQ(x.host()[3], 7) << name << " rank " << rank;
    });
  });
}

TEST(SimulatedNccl, CallsThatDoNotAgreeAreFaults) {
  for_each_schedule(1, [](const std::string& /*name*/) {
    on_two([&](int rank, ncclComm_t comm, cudaStream_t stream) {
      const DeviceBuffer<float> x(stream, ramp(10));
      ncclBroadcast(x.get(), x.get(), 10, rank == 0 ? ncclFloat32 : ncclInt32, 0, comm, stream);
      settled(comm);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    });
    EXPECT_THAT(take_both(), HasSubstr("rank 1 calls broadcast of 10 int32"));
  });
}

TEST(SimulatedNccl, MessagesThatDoNotFitAreFaults) {
  on_two([&](int rank, ncclComm_t comm, cudaStream_t stream) {
    const DeviceBuffer<float> x(stream, ramp(10));
    if (rank == 0) {
      ncclSend(x.get(), 5, ncclFloat32, 1, comm, stream);
    } else {
      ncclRecv(x.get(), 6, ncclFloat32, 0, comm, stream);
    }
    settled(comm);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  });
  EXPECT_THAT(take_both(), HasSubstr("sends rank 1 a send of 5 float32"));
}

TEST(SimulatedNccl, TooLargeAndOverlappingMemoryAreFaults) {
  on_two([&](int, ncclComm_t comm, cudaStream_t stream) {
    const DeviceBuffer<float> x(stream, ramp(10));
    ncclAllReduce(x.get(), x.get(), 11, ncclFloat32, ncclSum, comm, stream);
    settled(comm);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  });
  EXPECT_THAT(take_both(), HasSubstr("leaves the memory"));
  on_two([&](int, ncclComm_t comm, cudaStream_t stream) {
    const DeviceBuffer<float> x(stream, ramp(20));
    ncclAllGather(x.get() + 1, x.get(), 10, ncclFloat32, comm, stream);
    settled(comm);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  });
  EXPECT_THAT(take_both(), HasSubstr("overlap"));
}

// Sends and receives of one group go on together, whatever their order.
TEST(SimulatedNccl, AGroupGoesOnAsOne) {
  for_each_schedule(2, [](const std::string& name) {
    on_two([&](int rank, ncclComm_t comm, cudaStream_t stream) {
      const DeviceBuffer<float> x(stream, ramp(10)), y(stream, 10);
      ncclGroupStart();
      ncclSend(x.get(), 10, ncclFloat32, 1 - rank, comm, stream);
      ncclSend(x.get(), 4, ncclFloat32, rank, comm, stream);
      ncclRecv(y.get() + 4, 4, ncclFloat32, rank, comm, stream);
      ncclRecv(x.get(), 10, ncclFloat32, 1 - rank, comm, stream);
      EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
      EXPECT_EQ(settled(comm), ncclSuccess);
      EXPECT_EQ(y.host()[5], 1.5F) << name;
    });
  });
}

// Until it is polled for, a call is not on its stream.
TEST(SimulatedNccl, ACallInProgressIsNotOnItsStream) {
  on_two([&](int, ncclComm_t comm, cudaStream_t stream) {
    const DeviceBuffer<float> x(stream, ramp(10));
    EXPECT_EQ(ncclAllReduce(x.get(), x.get(), 10, ncclFloat32, ncclSum, comm, stream),
              ncclInProgress);
    EXPECT_EQ(x.host()[3], 3.5F);
    EXPECT_EQ(ncclAllReduce(x.get(), x.get(), 10, ncclFloat32, ncclSum, comm, stream),
              ncclInvalidUsage);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(x.host()[3], 7);
  });
}

}  // namespace
}  // namespace anabranch::cuda_sim
