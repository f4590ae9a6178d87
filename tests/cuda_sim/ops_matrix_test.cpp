// Matrix products on the simulated GPU: the same bits in every order of its threads and work.
#include <functional>
#include <string>
#include <vector>

#include "core/ops/aurora.h"
#include "core/ops/block_linear.h"
#include "core/ops/grouped_linear.h"
#include "core/ops/linear.h"
#include "core/ops/linear_cross_entropy.h"
#include "core/ops/muon.h"
#include "core/ops/stream_linear.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

class SimMatrixOps : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  // What `run` gives in the forward order is what it gives in all of them, to the bit.
  static void expect_same_in_every_order(const std::function<std::vector<Tensor>()>& run) {
    const std::vector<Tensor> want = run();
    const auto same = [&](const std::string& name) {
      const std::vector<Tensor> got = run();
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(test::same_bytes(got[i], want[i])) << name << ", result " << i;
      }
    };
    cuda_sim::for_each_order(2, same);
    cuda_sim::for_each_schedule(2, same);
  }

  // y, dx and the parameters' gradients of an op.
  void expect_op_same(const test::Op& op, const Tensor& x, const std::vector<Param*>& params) {
    expect_same_in_every_order([&] {
      const test::OpRun got = test::run_op(op, x, params, {}, gpu_);
      std::vector<Tensor> all{got.y, got.dx};
      all.insert(all.end(), got.dparams.begin(), got.dparams.end());
      return all;
    });
  }

  const test::TestDevice gpu_ = test::devices().back();
};

TEST_F(SimMatrixOps, Linear) {
  for (const int64_t M : {24, 37}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Param w = test::param("w", test::random({M, 40}, 1, type));
      Param b = test::param("b", test::random({M}, 2, DType::kF32));
      const Tensor x = test::random({70, 40}, 3, type);
      expect_op_same([&](const Var& v) { return linear(v, w, &b); }, x, {&w, &b});
      expect_op_same([&](const Var& v) { return linear_gelu(v, w, b); }, x, {&w, &b});
    }
  }
}

TEST_F(SimMatrixOps, LinearCrossEntropy) {
  Tensor targets({9}, DType::kI32);
  for (int32_t n = 0; n < 9; ++n) targets.data<int32_t>()[n] = n == 4 ? -1 : 7 * n;
  for (const auto& [V, type] :
       {std::pair(1500, DType::kF32), {1500, DType::kBF16}, {9000, DType::kBF16}}) {
    Param w = test::param("w", test::random({V, 16}, 1, type));
    const Tensor x = test::random({9, 16}, 3, type), one = test::full({1}, 1, DType::kF32);
    expect_same_in_every_order([&] {
      const auto op = [&](const Var& v) {
        return linear_cross_entropy(v, w, gpu_.place(targets), 0.5, 3);
      };
      const test::OpRun got = test::run_op(op, x, {&w}, one, gpu_);
      return std::vector<Tensor>{got.y, got.dx, got.dparams[0]};
    });
  }
}

TEST_F(SimMatrixOps, GroupedLinear) {
  const Groups groups{{0, 130, 130, 137}};
  for (const auto& [M, type] :
       {std::pair(24, DType::kF32), {24, DType::kBF16}, {37, DType::kBF16}}) {
    Param w = test::param("w", test::random({3, M, 104}, 1, type));
    expect_op_same([&](const Var& v) { return grouped_linear(v, w, groups); },
                   test::random({137, 104}, 3, type), {&w});
  }
}

TEST_F(SimMatrixOps, BlockLinear) {
  Param w = test::param("w", test::random({3, 8, 8}, 1, DType::kBF16));
  Param b = test::param("b", test::random({24}, 2, DType::kF32));
  expect_op_same([&](const Var& v) { return block_linear(v, w, b); },
                 test::random({50, 24}, 3, DType::kBF16), {&w, &b});
}

TEST_F(SimMatrixOps, StreamLinear) {
  for (const auto& [C, type] :
       {std::pair(24, DType::kF32), {24, DType::kBF16}, {13, DType::kBF16}}) {
    Param w = test::param("w", test::random({5, 16, C}, 1, type));
    Param b = test::param("b", test::random({5, 16}, 2, DType::kF32));
    const Tensor rows = test::random({70, C}, 3, type), du = test::random({70, 16}, 5, type);
    expect_same_in_every_order([&] {
      const std::vector<Param*> params{&w, &b};
      const test::ParamsOn there(gpu_, params);
      w.fresh = b.fresh = true;
      w.grad = b.grad = {};
      Tape tape;
      const Var s = tape.input(gpu_.place(rows));
      const Var g = tape.input(gpu_.place(test::random({70, 5}, 4, DType::kF32)));
      const Var u = stream_linear(s, g, w, b);
      tape.backward(u, gpu_.place(du));
      return std::vector<Tensor>{u.value(), tape.take_grad(s), tape.take_grad(g),
                                 w.grad.copy_in(nullptr), b.grad.copy_in(nullptr)};
    });
  }
}

TEST_F(SimMatrixOps, MuonAndAurora) {
  for (const Shape& shape : {Shape{2, 24, 40}, Shape{2, 41, 9}}) {
    expect_same_in_every_order([&] {
      const Tensor g = gpu_.place(test::random(shape, 3, DType::kF32));
      Tensor w = gpu_.place(test::random(shape, 1, DType::kF32)),
             m = gpu_.place(test::random(shape, 2, DType::kF32)),
             s = gpu_.place(test::full({2, std::max(shape[1], shape[2])}, 0, DType::kF32));
      Tensor value = gpu_.place(Tensor(shape, DType::kBF16));
      muon(w, m, s, g, &value, {.lr = 0.1, .compute = DType::kBF16});
      aurora(w, m, g, &value,
             {.lr = 0.1, .compute = DType::kBF16, .form = PolarForm::simple_quintic(2)});
      return std::vector<Tensor>{w, m, s, value};
    });
  }
}

}  // namespace
}  // namespace anabranch
