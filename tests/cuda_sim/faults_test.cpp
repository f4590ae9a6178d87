// Each planted fault stops its kernel, with a message that says where and what.
#include <cmath>
#include <functional>

#include <gmock/gmock.h>

#include "core/base/build.h"
#include "core/base/error.h"
#include "tests/cuda_sim/device_buffer.h"
#include "tests/cuda_sim/faulty.h"
#include "tests/cuda_sim/sim.h"

namespace anabranch::cuda_sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Faults : public testing::Test {
 protected:
  // What stopped the device when `kernel` ran on 64 elements.
  std::string fault_of(const std::function<void(float* data, cudaStream_t stream)>& kernel) {
    const DeviceBuffer<float> data(stream_.get(), ramp(64));
    try {
      kernel(data.get(), stream_.get());
      cudaStreamSynchronize(stream_.get());
    } catch (const Error& error) {  // when work runs at once, the launch itself sees the fault
      EXPECT_THAT(error.what(), HasSubstr("cudaErrorLaunchFailure"));
    }
    return take_fault();
  }

  TestStream stream_;
};

TEST_F(Faults, ABarrierThatNotAllReach) {
  EXPECT_THAT(fault_of(faulty::exits_early),
              AllOf(HasSubstr("exits_early_kernel"), HasSubstr("barrier divergence"),
                    HasSubstr("waits in __syncthreads at"), HasSubstr("faulty.cu:"),
                    HasSubstr("but thread (40,0,0) has exited")));
  EXPECT_THAT(fault_of(faulty::two_barriers), HasSubstr("barrier divergence"));
}

TEST_F(Faults, CollectivesThatDoNotMeet) {
  EXPECT_THAT(fault_of(faulty::shuffle_in_a_branch), HasSubstr("waits in __shfl_xor_sync"));
  EXPECT_THAT(fault_of(faulty::mixed_collectives),
              AllOf(HasSubstr("warp divergence"), HasSubstr("__ballot_sync")));
  EXPECT_THAT(fault_of(faulty::shuffle_from_outside), HasSubstr("lane 8 shuffles from lane 16"));
  EXPECT_THAT(fault_of(faulty::different_masks), HasSubstr("warp divergence"));
}

TEST_F(Faults, GlobalMemoryThatIsNotItsOwn) {
  const DeviceBuffer<float> out(stream_.get(), 1), odd(stream_.get(), 61);
  EXPECT_EQ(fault_of([&](float* p, cudaStream_t s) { faulty::reads(p, 63, out.get(), s); }), "");
  EXPECT_THAT(fault_of([&](float* p, cudaStream_t s) { faulty::reads(p, 64, out.get(), s); }),
              AllOf(HasSubstr("thread (31,0,0)"),
                    HasSubstr("0 bytes past the end of an allocation of 256 bytes")));
  EXPECT_THAT(fault_of([](float* p, cudaStream_t s) { faulty::writes(p, 66, s); }),
              HasSubstr("8 bytes past the end"));
  if constexpr (!build::kSanitized) {  // which would end the program itself
    EXPECT_THAT(fault_of([](float*, cudaStream_t s) { faulty::writes(nullptr, 0, s); }),
                HasSubstr("a null pointer"));
  }
  // Between the end of an odd size and the page behind it, and in front of a block.
  EXPECT_EQ(fault_of([&](float*, cudaStream_t s) { faulty::reads(odd.get(), 61, out.get(), s); }),
            "");
  EXPECT_TRUE(std::isnan(out.host()[0]));
}

TEST_F(Faults, AWriteOutsideAnAllocationShowsWhenItIsFreed) {
  for (const int at : {-1, 61}) {
    {
      const DeviceBuffer<float> odd(stream_.get(), 61);
      faulty::writes(odd.get(), at, stream_.get());
      cudaStreamSynchronize(stream_.get());
      EXPECT_EQ(take_fault(), "");
    }
    EXPECT_THAT(take_fault(), HasSubstr("244 bytes was written outside its bounds"));
  }
}

TEST_F(Faults, SharedMemoryThatIsNotItsOwn) {
  EXPECT_EQ(fault_of([](float* p, cudaStream_t s) { faulty::writes_shared(p, 31, s); }), "");
  EXPECT_THAT(fault_of([](float* p, cudaStream_t s) { faulty::writes_shared(p, 32, s); }),
              HasSubstr("0 bytes past the end of 128 bytes of shared memory"));
  EXPECT_THAT(fault_of([](float* p, cudaStream_t s) { faulty::reads_shared(p, 33, s); }),
              HasSubstr("4 bytes past the end of 128 bytes of shared memory"));
  EXPECT_THAT(fault_of([](float* p, cudaStream_t s) { faulty::writes_static(p, 32, s); }),
              HasSubstr("past the end of 128 bytes of shared memory"));
  EXPECT_THAT(fault_of([](float* p, cudaStream_t s) { faulty::writes_shared(p, -1, s); }),
              HasSubstr("shared memory was written outside its 128 bytes"));
  EXPECT_THAT(fault_of(faulty::takes_too_much_shared), HasSubstr("more than the"));
}

TEST_F(Faults, UninitialisedMemoryIsNaN) {
  const DeviceBuffer<float> out(stream_.get(), 32);
  EXPECT_TRUE(std::isnan(out.host()[5]));
  faulty::adds_to_uninitialised(out.get(), stream_.get());
  EXPECT_TRUE(std::isnan(out.host()[7]));
  EXPECT_EQ(take_fault(), "");
}

TEST_F(Faults, AWideAccessThatIsNotAligned) {
  const DeviceBuffer<float> out(stream_.get(), 1);
  EXPECT_EQ(fault_of([&](float* p, cudaStream_t s) { faulty::reads_four(p, 8, out.get(), s); }),
            "");
  EXPECT_THAT(fault_of([&](float* p, cudaStream_t s) { faulty::reads_four(p, 9, out.get(), s); }),
              HasSubstr("an access of 16 bytes is not aligned"));
}

TEST_F(Faults, PointersOfTheHost) {
  std::vector<float> host(64);
  EXPECT_THAT(fault_of([&](float* p, cudaStream_t s) { faulty::scale(host.data(), p, 64, 1, s); }),
              HasSubstr("pointer argument 0 is not device memory"));
}

TEST_F(Faults, AreStickyUntilTaken) {
  try {
    faulty::traps(stream_.get());
  } catch (const Error& error) {  // or the next call, when work does not run at once
    EXPECT_THAT(error.what(), HasSubstr("cudaErrorLaunchFailure"));
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_THAT(take_fault(), HasSubstr("__trap()"));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Faults, BadArgumentsAreRefused) {
  const DeviceBuffer<float> data(stream_.get(), 4);
  std::vector<float> host(8);
  EXPECT_EQ(cudaMemcpyAsync(data.get(), host.data(), 32, cudaMemcpyHostToDevice, stream_.get()),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), data.get(), 16, cudaMemcpyHostToDevice, stream_.get()),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 4, stream_.get()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(data.get(), 0, 4, nullptr), cudaErrorNotSupported);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  void* block = nullptr;
  EXPECT_EQ(cudaMalloc(&block, size_t{3} << 30U), cudaErrorMemoryAllocation);
  EXPECT_THROW(faulty::scale(data.get(), data.get(), 1 << 30, 1, nullptr), Error);
  take_fault();
}

}  // namespace
}  // namespace anabranch::cuda_sim
