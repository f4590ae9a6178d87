// Barriers that are missing show in some order of the threads.
#include <cmath>
#include <functional>

#include <gmock/gmock.h>

#include "tests/cuda_sim/device_buffer.h"
#include "tests/cuda_sim/faulty.h"
#include "tests/cuda_sim/sim.h"

namespace anabranch::cuda_sim {
namespace {

using Values = std::vector<float>;
// Runs a kernel on a stream and gives its output.
using Program = std::function<Values(bool right, cudaStream_t stream)>;

// The orders in which the answer is not `want`, by name.
std::string orders_that_differ(const Values& want, const Program& run, bool right) {
  std::string names;
  for_each_order(4, [&](const std::string& name) {
    const TestStream stream;
    const Values got = run(right, stream.get());
    bool equal = true;
    for (size_t i = 0; i < want.size(); ++i) equal = equal && got[i] == want[i];
    if (!equal) names += name + "; ";
  });
  EXPECT_EQ(take_fault(), "");
  return names;
}

void expect_found(const Values& want, const Program& run) {
  EXPECT_EQ(orders_that_differ(want, run, true), "");
  EXPECT_NE(orders_that_differ(want, run, false), "");
}

Values reversed(const Values& values) { return {values.rbegin(), values.rend()}; }

TEST(Orders, FindAMissingBarrier) {
  expect_found(reversed(ramp(256)), [](bool right, cudaStream_t stream) {
    const DeviceBuffer<float> in(stream, ramp(256)), out(stream, 256);
    faulty::reverse(in.get(), out.get(), right, stream);
    return out.host();
  });
}

// So that an order which is ignored does not pass for one that finds nothing.
TEST(Orders, FindABarrierThatTheForwardOneHides) {
  Values want = ramp(256);
  want.pop_back();
  want.insert(want.begin(), 0);
  const Program run = [](bool right, cudaStream_t stream) {
    const DeviceBuffer<float> in(stream, ramp(256)), out(stream, 256);
    faulty::shift(in.get(), out.get(), right, stream);
    return out.host();
  };
  EXPECT_EQ(orders_that_differ(want, run, true), "");
  EXPECT_THAT(orders_that_differ(want, run, false),
              testing::MatchesRegex("reverse order; (random order, seed [0-9]+; )+"));
}

TEST(Orders, FindAMissingWarpBarrier) {
  expect_found({512}, [](bool right, cudaStream_t stream) {
    const DeviceBuffer<float> in(stream, ramp(32)), out(stream, 1);
    faulty::warp_tree(in.get(), out.get(), right, stream);
    return out.host();
  });
}

TEST(Orders, FindAWriteBeforeAllHaveRead) {
  Values want;
  for (size_t i = 0; i < 64; ++i) want.push_back(2 * ramp(64)[(i + 1) % 64]);
  expect_found(want, [](bool right, cudaStream_t stream) {
    const DeviceBuffer<float> data(stream, ramp(64));
    faulty::write_after_read(data.get(), right, stream);
    return data.host();
  });
}

TEST(Orders, FindACopyThatNobodyWaitsFor) {
  expect_found(reversed(ramp(128)), [](bool right, cudaStream_t stream) {
    const DeviceBuffer<float> in(stream, ramp(128)), out(stream, 128);
    faulty::async_reverse(in.get(), out.get(), right, stream);
    return out.host();
  });
}

TEST(Orders, FindASumThatIsNotAtomic) {
  expect_found({32768}, [](bool right, cudaStream_t stream) {
    const DeviceBuffer<float> in(stream, ramp(256)), total(stream, Values{0});
    faulty::sum(in.get(), total.get(), right, stream);
    return total.host();
  });
}

TEST(Orders, AreWhatTheySay) {
  std::vector<std::vector<int>> seen;
  for_each_order(2, [&](const std::string&) {
    const TestStream stream;
    const DeviceBuffer<int> next(stream.get(), std::vector<int>{0}), order(stream.get(), 64);
    faulty::arrival(next.get(), order.get(), stream.get());
    seen.push_back(order.host());
  });
  EXPECT_EQ(seen[0][1], 1);
  EXPECT_EQ(seen[1], std::vector<int>(seen[0].rbegin(), seen[0].rend()));
  EXPECT_NE(seen[2], seen[0]);
  EXPECT_NE(seen[2], seen[1]);
  EXPECT_NE(seen[2], seen[3]);
}

}  // namespace
}  // namespace anabranch::cuda_sim
