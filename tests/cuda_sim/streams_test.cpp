// A dependency between streams that is missing shows under some policy.
#include <cmath>
#include <cstring>

#include "tests/cuda_sim/device_buffer.h"
#include "tests/cuda_sim/faulty.h"
#include "tests/cuda_sim/sim.h"

namespace anabranch::cuda_sim {
namespace {

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, flags), cudaSuccess);
  }

  ~Event() { cudaEventDestroy(event_); }

  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// One stream makes what another reads; true if the reader saw it.
bool handed_over(bool waits) {
  const TestStream maker, reader;
  const DeviceBuffer<float> in(maker.get(), ramp(64)), between(maker.get(), 64);
  const DeviceBuffer<float> out(reader.get(), 64);
  const Event made;
  faulty::scale(in.get(), between.get(), 64, 2, maker.get());
  cudaEventRecord(made.get(), maker.get());
  if (waits) cudaStreamWaitEvent(reader.get(), made.get());
  faulty::scale(between.get(), out.get(), 64, 3, reader.get());
  return out.host()[3] == 3.5F * 6;
}

// The reader of an earlier value; true if the second writer did not come too early.
bool read_in_time(bool waits) {
  const TestStream writer, reader;
  const DeviceBuffer<float> first(writer.get(), ramp(64)), shared(writer.get(), 64);
  const DeviceBuffer<float> out(reader.get(), 64);
  const Event written, read;
  faulty::scale(first.get(), shared.get(), 64, 1, writer.get());
  cudaEventRecord(written.get(), writer.get());
  cudaStreamWaitEvent(reader.get(), written.get());
  faulty::scale(shared.get(), out.get(), 64, 1, reader.get());
  cudaEventRecord(read.get(), reader.get());
  if (waits) cudaStreamWaitEvent(writer.get(), read.get());
  faulty::scale(first.get(), shared.get(), 64, 100, writer.get());
  return out.host()[3] == 3.5F;
}

std::string policies_that_fail(bool (*program)(bool), bool waits) {
  std::string names;
  for_each_schedule(6, [&](const std::string& name) {
    if (!program(waits)) names += name + "; ";
  });
  EXPECT_EQ(take_fault(), "");
  return names;
}

TEST(StreamPolicies, FindAReaderThatDoesNotWait) {
  EXPECT_EQ(policies_that_fail(handed_over, true), "");
  const std::string found = policies_that_fail(handed_over, false);
  EXPECT_EQ(found.substr(0, 6), "lazy; ");  // eager hides it
  EXPECT_NE(found.find("random streams"), std::string::npos);
}

TEST(StreamPolicies, FindAWriterThatDoesNotWait) {
  EXPECT_EQ(policies_that_fail(read_in_time, true), "");
  const std::string found = policies_that_fail(read_in_time, false);
  EXPECT_NE(found.find("others first"), std::string::npos);  // lazy hides it
  EXPECT_EQ(found.find("eager"), std::string::npos);
}

TEST(StreamPolicies, FindAHostThatReadsTooEarly) {
  for_each_schedule(0, [](const std::string& name) {
    const TestStream stream;
    const DeviceBuffer<float> in(stream.get(), ramp(64));
    void* block = nullptr;
    ASSERT_EQ(cudaMallocHost(&block, 64 * sizeof(float)), cudaSuccess);
    const auto* pinned = static_cast<const float*>(block);
    cudaMemcpyAsync(block, in.get(), 64 * sizeof(float), cudaMemcpyDeviceToHost, stream.get());
    EXPECT_EQ(std::isnan(pinned[0]), name != "eager") << name;
    while (cudaStreamQuery(stream.get()) == cudaErrorNotReady) {
    }
    EXPECT_EQ(pinned[0], 0.5F) << name;
    cudaFreeHost(block);
  });
}

// The host may write over pageable memory once the copy from it has been called, pinned memory not.
TEST(StreamPolicies, CopiesFromPageableMemoryAreStaged) {
  for_each_schedule(0, [](const std::string& name) {
    const TestStream stream;
    std::vector<float> host = ramp(4);
    const DeviceBuffer<float> copied(stream.get(), host);
    host.assign(4, -1);
    EXPECT_EQ(copied.host(), ramp(4)) << name;

    void* pinned = nullptr;
    ASSERT_EQ(cudaMallocHost(&pinned, 16), cudaSuccess);
    std::memcpy(pinned, ramp(4).data(), 16);
    cudaMemcpyAsync(copied.get(), pinned, 16, cudaMemcpyHostToDevice, stream.get());
    std::memcpy(pinned, host.data(), 16);
    EXPECT_EQ(copied.host() == ramp(4), name == "eager") << name;
    cudaFreeHost(pinned);
  });
}

TEST(Events, SayWhenTheyAreDone) {
  for_each_schedule(1, [](const std::string& name) {
    const TestStream stream;
    const DeviceBuffer<float> data(stream.get(), ramp(64));
    const Event begin(cudaEventDefault), end(cudaEventDefault);
    cudaEventRecord(begin.get(), stream.get());
    faulty::scale(data.get(), data.get(), 64, 2, stream.get());
    cudaEventRecord(end.get(), stream.get());
    float elapsed = -1;
    if (options().streams != Streams::kEager && options().streams != Streams::kDelayed) {
      EXPECT_EQ(cudaEventElapsedTime(&elapsed, begin.get(), end.get()), cudaErrorNotReady) << name;
      EXPECT_EQ(cudaEventQuery(end.get()), cudaErrorNotReady) << name;
    }
    EXPECT_EQ(cudaEventSynchronize(end.get()), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(end.get()), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&elapsed, begin.get(), end.get()), cudaSuccess);
    EXPECT_GE(elapsed, 0);
  });
}

TEST(Memory, IsCountedByDevice) {
  cudaSetDevice(1);
  EXPECT_EQ(allocated_bytes(), 0);
  {
    const TestStream stream;
    const DeviceBuffer<float> data(stream.get(), 100);
    EXPECT_EQ(allocated_bytes(), 400);
    cudaSetDevice(0);
    EXPECT_EQ(cudaMemsetAsync(data.get(), 0, 4, stream.get()), cudaErrorInvalidResourceHandle);
    cudaSetDevice(1);
  }
  EXPECT_EQ(allocated_bytes(), 0);
  cudaSetDevice(0);
  take_fault();
}

}  // namespace
}  // namespace anabranch::cuda_sim
