// What kernels may use does what CUDA's does, in every order of the threads.
#include "tests/cuda_sim/dialect.h"

#include <array>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "tests/cuda_sim/device_buffer.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/tensors.h"

namespace anabranch::cuda_sim {
namespace {

using Body = std::function<void(cudaStream_t stream, const std::string& order)>;

void in_each_order(const Body& body) {
  for_each_order(2, [&](const std::string& order) {
    const TestStream stream;
    body(stream.get(), order);
    EXPECT_EQ(take_fault(), "") << order;
  });
}

TEST(Dialect, SumsOfABlockReachAllItsThreads) {
  in_each_order([](cudaStream_t stream, const std::string& order) {
    const DeviceBuffer<float> in(stream, ramp(64)), out(stream, 64);
    dialect::sums(in.get(), out.get(), stream);
    EXPECT_EQ(out.host(), std::vector<float>(64, 2048)) << order;
  });
}

TEST(Dialect, LanesExchangeAndVote) {
  in_each_order([](cudaStream_t stream, const std::string& order) {
    const DeviceBuffer<float> in(stream, ramp(32)), out(stream, size_t{32} * 7);
    dialect::lanes(in.get(), out.get(), stream);
    const std::vector<float> got = out.host();
    for (size_t lane = 0; lane < 32; ++lane) {
      const std::array<size_t, 4> from{5, lane ^ 3U, lane < 2 ? lane : lane - 2,
                                       lane > 29 ? lane : lane + 2};
      for (size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(got[lane * 7 + i], ramp(32)[from[i]]) << order << ", lane " << lane;
      }
      EXPECT_EQ(got[lane * 7 + 4], 11) << order;
      EXPECT_EQ(got[lane * 7 + 5], 2) << order;
      const unsigned peers = lane < 20 ? 0x401U << lane % 10 : 0xFFF00000U;
      EXPECT_EQ(got[lane * 7 + 6], static_cast<float>(peers)) << order << ", lane " << lane;
    }
  });
}

TEST(Dialect, ProductsOfTilesAreRight) {
  const Tensor a = test::random({16, 16}, 1, DType::kBF16),
               b = test::random({16, 16}, 2, DType::kBF16);
  const std::vector<double> as = test::values(a), bs = test::values(b);
  std::vector<double> want;
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 16; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += as[i * 16 + k] * bs[j * 16 + k];
      want.push_back(sum);
    }
  }
  in_each_order([&](cudaStream_t stream, const std::string& order) {
    const auto elements = [](const Tensor& t) {
      return std::vector<Bf16>(t.span<Bf16>().begin(), t.span<Bf16>().end());
    };
    const DeviceBuffer<Bf16> left(stream, elements(a)), right(stream, elements(b));
    const DeviceBuffer<float> c(stream, 256);
    dialect::product(left.get(), right.get(), c.get(), stream);
    test::expect_near(Tensor::of<float>({16, 16}, c.host()), want, test::op_tolerance(DType::kF32),
                      order);
  });
}

TEST(Dialect, IndicesCoverTheGrid) {
  in_each_order([](cudaStream_t stream, const std::string& order) {
    const DeviceBuffer<int> out(stream, size_t{12} * 16);
    const uint64_t blocks = counters().blocks;
    dialect::indices(out.get(), stream);
    const std::vector<int> got = out.host();
    EXPECT_EQ(counters().blocks - blocks, 12) << order;
    for (int i = 0; i < 12 * 16; ++i) {
      EXPECT_EQ(got[static_cast<size_t>(i)], i / 16 * 100 + i % 16) << order;
    }
  });
}

TEST(Dialect, PacksAndRoundingAreTheHosts) {
  in_each_order([](cudaStream_t stream, const std::string& order) {
    const Tensor x = test::random({32}, 1, DType::kF32);
    const DeviceBuffer<float> in(stream, {x.span<float>().begin(), x.span<float>().end()});
    const DeviceBuffer<float> out(stream, 32);
    dialect::through_bf16(in.get(), out.get(), stream);
    const std::vector<float> got = out.host();
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], float(Bf16(x.span<float>()[i]))) << order;
  });
}

TEST(Dialect, ALaunchThatIsRefusedNamesTheKernelAndWhatItAskedFor) {
  const TestStream stream;
  const size_t kept = std::exchange(options().shared_bytes, 1 << 10);
  try {
    dialect::much_shared(2048, stream.get());
    ADD_FAILURE() << "2048 bytes of 1024";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("1 x 1 x 1 blocks of 32 x 1 x 1 threads with 2048 "
                                                 "bytes of shared memory"));
    EXPECT_THAT(error.what(), testing::HasSubstr("much_shared_kernel"));
  }
  options().shared_bytes = kept;
  cudaGetLastError();
}

// CUDA lets a kernel have what it was told last, of the device that was current then. Another
// thread that asks for less must not take away what this one is about to launch with.
TEST(Dialect, AKernelKeepsTheMostSharedMemoryThatItAskedFor) {
  for (const int device : {0, 1}) {
    cudaSetDevice(device);
    const TestStream stream;
    dialect::much_shared(size_t{100} << 10U, stream.get());
    dialect::much_shared(size_t{60} << 10U, stream.get());
    EXPECT_EQ(dialect::shared_unasked(size_t{100} << 10U, stream.get()), cudaSuccess) << device;
    EXPECT_EQ(dialect::shared_unasked(size_t{101} << 10U, stream.get()),
              cudaErrorInvalidConfiguration);
    cudaGetLastError();
    dialect::much_shared(size_t{101} << 10U, stream.get());
  }
  cudaSetDevice(0);
}

TEST(Dialect, MoreThan48KiBOfSharedMemoryHaveToBeAskedFor) {
  cudaSetDevice(2);
  {
    const TestStream stream;
    EXPECT_EQ(dialect::shared_unasked(size_t{48} << 10U, stream.get()), cudaSuccess);
    EXPECT_EQ(dialect::shared_unasked(size_t{49} << 10U, stream.get()),
              cudaErrorInvalidConfiguration);
    cudaGetLastError();
  }
  cudaSetDevice(0);
}

}  // namespace
}  // namespace anabranch::cuda_sim
