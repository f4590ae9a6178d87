// Ops on the simulated GPU: the same bits in every order of its threads and of its work, and the
// edges of their kernels. That they are right is for the op tests to say, which run here too.
#include <functional>
#include <string>

#include "core/ops/add.h"
#include "core/ops/gelu.h"
#include "core/ops/layer_norm.h"
#include "core/ops/rms_norm.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using test::Op;
using test::OpRun;

class SimOps : public testing::Test {
 protected:
  // Gains and an offset of width `n`.
  void make_params(int64_t n) {
    const auto of = [n](const char* name, uint32_t seed) {
      return test::param(name, test::random({n}, seed, DType::kF32));
    };
    w_ = of("w", 3);
    b_ = of("b", 4);
    v_ = of("v", 5);
  }

  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  // All ops that have kernels, on one path.
  Var all_ops(const Var& x) {
    const AddNorm a = add_layer_norm(x, gelu(x, GeluForm::kErf), w_, b_);
    const AddRmsNorm c = add_rms_norm(a.sum, gelu(a.norm), v_);
    return c.sum + c.norm;
  }

  [[nodiscard]] OpRun run(const Tensor& x) {
    return test::run_op([this](const Var& v) { return all_ops(v); }, x, params_, {},
                        test::devices().back());
  }

  void expect_same(const OpRun& got, const OpRun& want, const std::string& name) {
    EXPECT_TRUE(test::same_bytes(got.y, want.y)) << name;
    EXPECT_TRUE(test::same_bytes(got.dx, want.dx)) << name;
    for (size_t i = 0; i < params_.size(); ++i) {
      EXPECT_TRUE(test::same_bytes(got.dparams[i], want.dparams[i])) << name << params_[i]->name;
    }
  }

  void expect_as_on_cpu(const Op& f, const Tensor& x, const std::vector<Param*>& params) {
    const OpRun want = test::run_op(f, x, params);
    const OpRun got = test::run_op(f, x, params, {}, test::devices().back());
    const auto tolerance = test::op_tolerance(x.dtype());
    test::expect_near(got.y, test::values(want.y), tolerance, "y");
    test::expect_near(got.dx, test::values(want.dx), tolerance, "dx");
    for (size_t i = 0; i < params.size(); ++i) {
      test::expect_near(got.dparams[i], test::values(want.dparams[i]), tolerance, params[i]->name);
    }
  }

  Param w_, b_, v_;
  std::vector<Param*> params_{&w_, &b_, &v_};
};

TEST_F(SimOps, RunOnIt) {
  ASSERT_EQ(test::devices().back().name, "cuda");
  make_params(72);
  const uint64_t before = cuda_sim::counters().kernels;
  const OpRun got = run(test::random({19, 72}, 1, DType::kF32));
  EXPECT_TRUE(got.y.device().is_cuda());
  EXPECT_EQ(test::values(got.dx).size(), 19U * 72U);  // once all has run
  EXPECT_GT(cuda_sim::counters().kernels, before + 10);
}

TEST_F(SimOps, GiveTheSameBitsInEveryOrder) {
  for (const int64_t n : {72, 37}) {
    make_params(n);
    const Tensor x = test::random({300, n}, 1, DType::kF32);
    const OpRun want = run(x);
    const auto same = [&](const std::string& name) { expect_same(run(x), want, name); };
    cuda_sim::for_each_order(2, same);
    cuda_sim::for_each_schedule(2, same);
  }
}

TEST_F(SimOps, TakeNoRows) {
  make_params(8);
  const OpRun none = run(test::random({0, 8}, 1, DType::kF32));
  EXPECT_EQ(none.dx.count(), 0);
  for (const Tensor& d : none.dparams) {
    EXPECT_EQ(test::values(d), std::vector<double>(8, 0));
  }
}

TEST_F(SimOps, TakeViewsThatAreNotAligned) {
  make_params(8);
  const test::TestDevice gpu = test::devices().back();
  const Tensor whole = test::random({1 + 4 * 8}, 1, DType::kF32);
  const Tensor view = whole.view(1, {4, 8}), placed = gpu.place(whole).view(1, {4, 8});
  const test::ParamsOn there(gpu, params_);
  const std::vector<double> got = test::values(all_ops(placed).value());
  const std::vector<double> aligned = test::values(all_ops(gpu.place(view)).value());
  test::expect_near(Tensor::of<double>({32}, got), aligned, test::op_tolerance(DType::kF32), "y");
}

TEST_F(SimOps, TakeWideRowsUpToWhatSharedMemoryHolds) {
  make_params(20000);
  const auto norm = [this](const Var& x) { return layer_norm(x, w_, b_); };
  expect_as_on_cpu(norm, test::random({3, 20000}, 1, DType::kF32), {&w_, &b_});
  make_params(30000);
  EXPECT_THROW(test::run_op(norm, test::random({1, 30000}, 1, DType::kF32), {&w_, &b_}, {},
                            test::devices().back()),
               Error);
}

TEST_F(SimOps, TakeManyRows) {
  make_params(8);
  const auto norm = [this](const Var& x) { return rms_norm(x, w_); };
  expect_as_on_cpu(norm, test::random({700, 8}, 1, DType::kF32), {&w_});
}

TEST_F(SimOps, RefuseMixedDevices) {
  make_params(8);
  const test::TestDevice gpu = test::devices().back();
  const Tensor x = test::random({2, 8}, 1, DType::kF32);
  EXPECT_THROW(add(gpu.place(x), x), Error);
  EXPECT_THROW(rms_norm(gpu.place(x), w_), Error);
}

}  // namespace
}  // namespace anabranch
