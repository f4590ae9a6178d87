// Memory, streams and tensors of a GPU.
#include <cstring>

#include "core/autograd/tape.h"
#include "core/ops/add.h"
#include "core/tensor/accumulate.h"
#include "core/tensor/download.h"
#include "core/tensor/element.h"
#include "core/tensor/staging_cuda.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

constexpr Device kGpu{Device::Kind::kCuda, 0};

class SimTensors : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(cuda_sim::take_fault(), "");
    EXPECT_EQ(cuda_sim::allocated_bytes(), 0U);
  }
};

TEST_F(SimTensors, GoThereAndBack) {
  cuda_sim::for_each_schedule(2, [](const std::string& name) {
    const auto pool = std::make_shared<Pool>(kGpu);
    const Tensor x = test::random({3, 5}, 1, DType::kBF16);
    const Tensor there = x.copy_in(pool), again = there.clone();
    EXPECT_EQ(there.device(), kGpu);
    EXPECT_NE(there.stream(), nullptr);
    EXPECT_EQ(x.stream(), nullptr);
    EXPECT_TRUE(test::same_bytes(again.view(5, {5}).copy_in(nullptr), x.view(5, {5}))) << name;
    Tensor zero = there.like("zero");
    zero.fill_zero();
    EXPECT_EQ(test::values(zero), std::vector<double>(15, 0)) << name;
  });
}

TEST_F(SimTensors, ElementsAreReadAndSet) {
  const auto pool = std::make_shared<Pool>(kGpu);
  Tensor x = test::random({4}, 1).copy_in(pool);
  set_element(x, 0.25, 2);
  EXPECT_EQ(element(x, 2), 0.25);
  EXPECT_EQ(element(x, 1), element(test::random({4}, 1), 1));
}

TEST_F(SimTensors, AreNotReadFromTheOtherSide) {
  const auto pool = std::make_shared<Pool>(kGpu);
  Tensor here = test::random({4}, 1), there = here.copy_in(pool);
  EXPECT_THROW((void)there.data<double>(), Error);
  EXPECT_THROW((void)here.device_data<double>(), Error);
  EXPECT_THROW((void)there.device_data<float>(), Error);
}

// Blocks that fit nobody are in nobody's way.
TEST_F(SimTensors, CachedBlocksGoBackWhereMemoryRunsOut) {
  const auto pool = std::make_shared<Pool>(kGpu);
  const auto bytes = static_cast<int64_t>(cuda_sim::options().device_bytes);
  const Tensor held({bytes / 16}, DType::kF32, pool, "held");  // a quarter
  { const Tensor half({bytes / 8}, DType::kF32, pool, "half"); }
  EXPECT_GT(pool->reserved(), bytes / 2);
  const Tensor third({bytes / 12}, DType::kF32, pool, "third");
  EXPECT_LT(pool->reserved(), bytes * 2 / 3);
  EXPECT_THROW(Tensor({bytes / 8}, DType::kF32, pool, "too much"), Error);
}

TEST_F(SimTensors, BlocksAreKeptInThePool) {
  const auto pool = std::make_shared<Pool>(kGpu);
  const std::byte* first = Tensor({100}, DType::kF32, pool).raw();
  EXPECT_EQ(Tensor({100}, DType::kF32, pool).raw(), first);
  const size_t held = cuda_sim::allocated_bytes();
  EXPECT_EQ(pool->reserved(), static_cast<int64_t>(held));
  pool->trim();
  EXPECT_EQ(cuda_sim::allocated_bytes(), 0U);

  const auto fresh = std::make_shared<Pool>(kGpu, Pool::Reuse::kNever);
  const Tensor a({3}, DType::kF32, fresh);
  EXPECT_EQ(cuda_sim::allocated_bytes(), 12U);
}

TEST_F(SimTensors, ExhaustedMemoryNamesItsHolders) {
  cuda_sim::options().device_bytes = 4096;
  const auto pool = std::make_shared<Pool>(kGpu);
  const Tensor held({512}, DType::kF32, pool, "the holder");
  try {
    const Tensor more({1024}, DType::kF32, pool, "more");
    ADD_FAILURE() << "there was memory";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the holder 2048"), std::string::npos);
  }
  cuda_sim::options().device_bytes = cuda_sim::Options{}.device_bytes;
}

// What comes later neither changes what is read, nor is waited for; what is not read hurts nobody.
TEST_F(SimTensors, AreReadWhileTheGpuGoesOn) {
  cuda_sim::for_each_schedule(2, [](const std::string& name) {
    const auto pool = std::make_shared<Pool>(kGpu);
    const Tensor x = test::random({700}, 1);
    Tensor there = x.copy_in(pool);
    const uint64_t before = cuda_sim::counters().kernels;
    for (unsigned i = 0; i < 3; ++i) {
      const Download unread(there), read(there);
      accumulate(there, there);
      const Tensor got = read.wait();
      if (cuda_sim::options().streams == cuda_sim::Streams::kLazy) {
        EXPECT_EQ(cuda_sim::counters().kernels, before + i) << name;
      }
      std::vector<double> want = test::values(x);
      for (double& v : want) v *= 1U << i;
      EXPECT_EQ(test::values(got), want) << name;
    }
    EXPECT_EQ(pool->stream().waits(), 3) << name;
    EXPECT_EQ(test::values(Download(x).wait()), test::values(x));
  });
}

TEST_F(SimTensors, ACopyToTheHostMayOutliveItsStream) {
  const size_t before = cuda_sim::pinned_bytes();
  cuda_sim::for_each_schedule(2, [&](const std::string& name) {
    const Tensor x = test::random({100}, 1);
    std::shared_ptr<cuda::Readback> late, later;
    {
      const auto pool = std::make_shared<Pool>(kGpu);
      const Tensor there = x.copy_in(pool);
      late = pool->stream().start_download(there.raw(), there.bytes());
      later = pool->stream().start_download(there.raw(), there.bytes());
    }
    EXPECT_EQ(std::memcmp(late->landing, x.raw(), x.bytes()), 0) << name;
    late.reset();
    EXPECT_EQ(std::memcmp(later->landing, x.raw(), x.bytes()), 0) << name;
    later.reset();
    EXPECT_EQ(cuda_sim::pinned_bytes(), before) << name;
  });
}

// A copy into pageable memory waits for it, and so gives the order of streams away.
TEST_F(SimTensors, AStreamWaitsForAnother) {
  for (const bool waits : {true, false}) {
    bool always_right = true;
    cuda_sim::for_each_schedule(4, [&](const std::string&) {
      const auto pool = std::make_shared<Pool>(kGpu);
      Stream other(kGpu);
      const Tensor one = test::full({64}, 1).copy_in(pool), two = add(one, one).value();
      if (waits) other.wait_for(pool->stream());
      Tensor host({64}, DType::kF64);
      other.download(host.raw(), two.raw(), two.bytes());
      always_right = always_right && test::values(host) == std::vector<double>(64, 2);
      pool->stream().synchronise();
    });
    EXPECT_EQ(always_right, waits);
  }
}

// What the host sends is on its way while it writes the next.
TEST_F(SimTensors, UploadsKeepTheHostGoing) {
  cuda_sim::for_each_schedule(4, [&](const std::string& name) {
    const auto pool = std::make_shared<Pool>(kGpu);
    Tensor sum = test::full({1000}, 0).copy_in(pool);
    Tensor next({1000}, DType::kF64);
    for (int i = 1; i <= 20; ++i) {
      next.copy_from(test::full({1000}, i));
      sum = add(sum, next.copy_in(pool)).value();
    }
    EXPECT_EQ(pool->stream().waits(), 0) << name;
    EXPECT_EQ(test::values(sum), std::vector<double>(1000, 210)) << name;
    EXPECT_EQ(pool->stream().waits(), 1) << name;
  });
}

TEST_F(SimTensors, UploadsLargerThanTheirStagingArriveWhole) {
  cuda_sim::for_each_schedule(2, [&](const std::string& name) {
    const auto pool = std::make_shared<Pool>(kGpu);
    const Tensor large = test::random({3000001}, 1, DType::kF32), odd = test::random({77}, 2);
    for (int round = 0; round < 3; ++round) {
      EXPECT_TRUE(test::same_bytes(odd.copy_in(pool).copy_in(nullptr), odd)) << name;
      EXPECT_TRUE(test::same_bytes(large.copy_in(pool).copy_in(nullptr), large)) << name;
    }
  });
}

TEST_F(SimTensors, TheTapeSeedsALossAndAddsGradients) {
  const auto pool = std::make_shared<Pool>(kGpu);
  Tape tape;
  const Var x = tape.input(test::full({1}, 3).copy_in(pool));
  tape.backward((x + x) + x);
  EXPECT_EQ(test::values(tape.take_grad(x)), std::vector<double>{3});
}

}  // namespace
}  // namespace anabranch
