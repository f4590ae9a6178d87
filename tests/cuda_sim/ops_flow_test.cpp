// What carries tokens through a model on the simulated GPU: the same bits in every order of its
// threads and of its work, and the edges of its kernels.
#include <functional>
#include <string>
#include <vector>

#include "core/ops/columns.h"
#include "core/ops/dropout.h"
#include "core/ops/embedding.h"
#include "core/ops/kappa_swiglu.h"
#include "core/ops/rows.h"
#include "core/ops/scalar_mix.h"
#include "core/ops/scale_gradient.h"
#include "core/ops/softmax.h"
#include "core/ops/squared_norm.h"
#include "core/ops/swiglu.h"
#include "core/ops/value_mix.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

class SimFlow : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  // Runs `body`, which gives what it computed, in every order and under every schedule.
  static void expect_same_bits(const std::function<std::vector<Tensor>()>& body) {
    const std::vector<Tensor> want = body();
    const auto same = [&](const std::string& name) {
      const std::vector<Tensor> got = body();
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(test::same_bytes(got[i], want[i])) << name << " " << i;
      }
    };
    cuda_sim::for_each_order(2, same);
    cuda_sim::for_each_schedule(2, same);
  }

  test::TestDevice gpu_ = test::devices().back();
};

TEST_F(SimFlow, EmbeddingsGiveTheSameBits) {
  Tensor ids({700}, DType::kI32);
  for (int64_t n = 0; n < 700; ++n) {
    const PhiloxBlock word = philox(6, static_cast<uint64_t>(n));
    ids.data<int32_t>()[n] = static_cast<int32_t>(word[0] % (word[1] % 2 == 0 ? 3U : 400U));
  }
  for (const int64_t C : {8, 5}) {
    Param table = test::param("wte", test::random({400, C}, 1, DType::kF32));
    const std::vector<Param*> params{&table};
    const Tensor dy = test::random({700, C}, 2, DType::kF32);
    expect_same_bits([&] {
      const test::ParamsOn there(gpu_, params);
      table.fresh = true;
      Tape tape;
      const Var y = embedding(&tape, gpu_.place(ids), table, gpu_.place(ids), &table);
      tape.backward(y, gpu_.place(dy));
      return std::vector<Tensor>{y.value(), table.grad.copy_in(nullptr)};
    });
  }
}

TEST_F(SimFlow, WhatHasNoParametersGivesTheSameBits) {
  const auto f = [](const Var& x) {
    const std::vector<Var> parts = split_columns(scale_gradient(dropout(x, 0.25, {42, 3}), 0.5), 2);
    return softmax(
        swiglu(join_columns(std::vector<Var>{parts[1], take_columns(x, 0, x.dim(1) / 2)})));
  };
  for (const int64_t width : {72, 36}) {
    const Tensor x = test::random({30, width}, 1, DType::kF32);
    expect_same_bits([&] {
      const test::OpRun run = test::run_op(f, x, {}, {}, gpu_);
      return std::vector<Tensor>{run.y, run.dx};
    });
  }
}

TEST_F(SimFlow, KappaGivesTheSameBits) {
  const Groups groups{{0, 70, 70, 130}};
  for (const int64_t width : {40, 37}) {
    Param alpha = test::param("alpha", test::random({3, width}, 1, DType::kF32));
    Param b = test::param("b", test::random({3, width}, 2, DType::kF32));
    const std::vector<Param*> params{&alpha, &b};
    const Tensor x = test::random({130, 2 * width}, 3, DType::kF32);
    const Tensor scores = test::random({130}, 4, DType::kF32);
    const auto f = [&](const Var& v) { return kappa_swiglu(gpu_.place(x), v, &alpha, &b, groups); };
    expect_same_bits([&] {
      const test::OpRun run = test::run_op(f, scores, params, {}, gpu_);
      return std::vector<Tensor>{run.y, run.dx, run.dparams[0], run.dparams[1]};
    });
  }
}

TEST_F(SimFlow, MixesGiveTheSameBits) {
  for (const int64_t C : {64, 12}) {
    Param p = test::param("p", test::random({2, 2}, 1, DType::kF32));
    Param b = test::param("b", test::random({C}, 2, DType::kF32));
    const std::vector<Param*> params{&p, &b};
    const Tensor logits = test::random({30, 2}, 3, DType::kF32);
    const auto f = [&](const Var& x) {
      const std::vector<Var> ys = scalar_mix(std::vector<Var>{x, x}, p);
      const Var e = add_row(take_columns(ys[1], 0, C), b, x.dtype());
      return value_mix(ys[0], e, gpu_.place(logits));
    };
    const Tensor x = test::random({30, 3 * C}, 4, DType::kF32);
    expect_same_bits([&] {
      const test::OpRun run = test::run_op(f, x, params, {}, gpu_);
      return std::vector<Tensor>{run.y, run.dx, run.dparams[0], run.dparams[1]};
    });
  }
}

TEST_F(SimFlow, WholeSumsGiveTheSameBits) {
  const Tensor x = test::random({30001}, 1, DType::kF32);
  expect_same_bits([&] {
    Tensor sum({1}, DType::kF64, gpu_.pool);
    squared_norm(sum, gpu_.place(x));
    return std::vector<Tensor>{sum};
  });
}

}  // namespace
}  // namespace anabranch
