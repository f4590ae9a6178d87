// Attention and what goes before it on the simulated GPU, as ops_test.cpp has it of other ops.
#include <string>

#include <gmock/gmock.h>

#include "core/ops/cached_attention.h"
#include "core/ops/qk_norm.h"
#include "core/ops/rope.h"
#include "tests/core/ops/attention_case.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

constexpr int64_t kBatch = 2, kTokens = 75, kHeads = 2;

class SimAttention : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(cuda_sim::take_fault(), "");
    cuda_sim::options().shared_bytes = cuda_sim::Options{}.shared_bytes;
  }

  // Normalised, turned, and within documents both ways.
  [[nodiscard]] Var attend(const Var& x, int64_t width) const {
    Tensor positions({x.dim(0)}, DType::kI32);
    for (int64_t i = 0; i < x.dim(0); ++i) {
      positions.data<int32_t>()[i] = static_cast<int32_t>(i % kTokens);
    }
    const RopeForm form{.heads_q = kHeads, .heads_kv = kHeads, .head_dim = width};
    const Var turned = rope(qk_norm(x, kHeads), gpu_.place(positions), form);
    return attention(turned, kBatch, kHeads,
                     gpu_.place(test::random_first_keys(kBatch, kTokens, 30)),
                     gpu_.place(test::random_last_keys(kBatch, kTokens, 30)));
  }

  [[nodiscard]] test::OpRun run(const Tensor& x, int64_t width) const {
    return test::run_op([&](const Var& v) { return attend(v, width); }, x, {}, {}, gpu_);
  }

  test::TestDevice gpu_ = test::devices().back();
};

TEST_F(SimAttention, GivesTheSameBitsInEveryOrder) {
  for (const auto& [type, width] :
       {std::pair<DType, int64_t>{DType::kBF16, 16}, {DType::kF32, 10}, {DType::kF32, 130}}) {
    const Tensor x = test::random({kBatch * kTokens, 3 * kHeads * width}, 1, type);
    const test::OpRun want = run(x, width);
    const auto same = [&, width = width](const std::string& name) {
      const test::OpRun got = run(x, width);
      EXPECT_TRUE(test::same_bytes(got.y, want.y)) << name << " D " << width;
      EXPECT_TRUE(test::same_bytes(got.dx, want.dx)) << name << " D " << width;
    };
    cuda_sim::for_each_order(1, same);
    cuda_sim::for_each_schedule(1, same);
  }
}

// GPUs of one generation differ in shared memory: sm_86, sm_89 and sm_120 have 99 KiB for a block.
TEST_F(SimAttention, TakesAKernelThatFitsTheSharedMemory) {
  constexpr int64_t kWidth = 128;
  const Tensor x = test::random({kBatch * kTokens, 3 * kHeads * kWidth}, 1, DType::kBF16);
  const test::OpRun want = run(x, kWidth);
  cuda_sim::options().shared_bytes = size_t{99} << 10U;
  const test::OpRun got = run(x, kWidth);
  test::expect_near(got.y, test::values(want.y), test::op_tolerance(DType::kBF16), "y");
  test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(DType::kBF16), "dx");
  cuda_sim::options().shared_bytes = 4352;  // for what goes before, but not for a row of this
  try {
    (void)run(x, kWidth);
    ADD_FAILURE() << "attention without shared memory";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("heads of 128 channels into the 4352 bytes"));
  }
}

TEST_F(SimAttention, GeneratesTheSameBitsInEveryOrder) {
  const Tensor qkv = test::random({80, 60}, 1, DType::kF32);
  const std::vector<int64_t> counts{40, 33};
  const auto run_cached = [&] {
    const Tensor there = gpu_.place(qkv);
    KvCache cache = make_kv_cache(there, 2, 50, 20);
    return test::values(cached_attention(there, cache, 2, counts));
  };
  const std::vector<double> want = run_cached();
  const auto same = [&](const std::string& name) { EXPECT_EQ(run_cached(), want) << name; };
  cuda_sim::for_each_order(2, same);
  cuda_sim::for_each_schedule(2, same);
}

TEST_F(SimAttention, TakesNoRows) {
  for (const int64_t width : {16, 130}) {
    const test::OpRun none =
        test::run_op([&](const Var& x) { return attention(qk_norm(x, 1), 2, 1); },
                     test::random({0, 3 * width}, 1, DType::kF32), {}, {}, gpu_);
    EXPECT_EQ(none.dx.count(), 0);
  }
}

// A sequence is a block along z, of which a GPU takes no more.
TEST_F(SimAttention, RefusesMoreSequencesThanALaunchHas) {
  constexpr int64_t kSequences = 65536;
  try {
    (void)attention(gpu_.place(test::random({kSequences, 3}, 1)), kSequences, 1);
    ADD_FAILURE() << "launched";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kConfig);
    EXPECT_THAT(error.what(), testing::HasSubstr("at most 65535 along the second and third: use a "
                                                 "smaller train.micro_batch"));
  }
  (void)cuda_sim::take_fault();
}

// Rows that begin 4 bytes beside 16 go the way of single elements, with the same sums.
TEST_F(SimAttention, TakesViewsThatAreNotAligned) {
  constexpr int64_t kWidth = 48;
  const Tensor whole = gpu_.place(test::random({1 + 40 * kWidth}, 1, DType::kF32));
  const Tensor view = whole.view(1, {40, kWidth});
  const auto both = [](const Tensor& x) {
    return test::values(attention(qk_norm(x, 1), 1, 1).value());
  };
  test::expect_near(gpu_.place(Tensor::of<double>({640}, both(view.copy_in(gpu_.pool)))),
                    both(view), test::op_tolerance(DType::kF32), "y");
}

}  // namespace
}  // namespace anabranch
