// The ops of streams, prefixes and gates on the simulated GPU: the same bits in every order of its
// threads and of its work, and the edges of their kernels. That they are right is for the op tests
// to say, which run here too.
#include <string>

#include "core/ops/adaptive_gate.h"
#include "core/ops/altup_correct.h"
#include "core/ops/fold_streams.h"
#include "core/ops/mix_streams.h"
#include "core/ops/prefix_mean.h"
#include "core/ops/prefix_rows.h"
#include "core/ops/repeat_streams.h"
#include "core/ops/sigmoid_gate.h"
#include "core/ops/stream_balance.h"
#include "core/ops/stream_gelu_mix.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/device_checks.h"

namespace anabranch {
namespace {

class SimStreams : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  static void expect_same_in_every_order(const test::OpOfMany& f, const std::vector<Tensor>& xs,
                                         const std::vector<Param*>& params) {
    const auto run = [&] { return test::run_many(f, xs, params, test::devices().back()); };
    const test::ManyRun want = run();
    const auto same = [&](const std::string& name) {
      const test::ManyRun got = run();
      EXPECT_TRUE(test::same_bytes(got.y, want.y)) << name;
      for (size_t i = 0; i < xs.size(); ++i) {
        EXPECT_TRUE(test::same_bytes(got.dxs[i], want.dxs[i])) << name << i;
      }
      for (size_t i = 0; i < params.size(); ++i) {
        EXPECT_TRUE(test::same_bytes(got.dparams[i], want.dparams[i])) << name << params[i]->name;
      }
    };
    cuda_sim::for_each_order(2, same);
    cuda_sim::for_each_schedule(2, same);
  }

  static Tensor floats(Shape shape, uint32_t seed) {
    return test::random(shape, seed, DType::kF32);
  }
};

// Copies of a batch whose gates, means and mixture become one output.
Var streams(const std::vector<Var>& x) {
  const Var copies = repeat_streams(x[0], 4);
  const Var past = prefix_mean(copies, 8, {MeanForm::Kind::kEma, 0.9});
  const Var gated = sigmoid_gate(copies, adaptive_gate(past, copies, x[2]));
  return mix_streams(fold_streams(gated, 4), x[1], 0.1);
}

TEST_F(SimStreams, GiveTheSameBitsInEveryOrder) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int64_t C : {8, 37}) {
      const Tensor x = test::random({2 * 70, C}, 1, type);
      expect_same_in_every_order(streams, {x, floats({2 * 70, 4}, 2), floats({8 * 70, 3}, 3)}, {});
    }
  }
}

TEST_F(SimStreams, PrefixesAndBlocksGiveTheSameBitsInEveryOrder) {
  for (const int64_t C : {8, 37}) {
    Param k = test::param("k", floats({2, 3, C}, 1)), v = test::param("v", floats({2, 3, C}, 2));
    expect_same_in_every_order(
        [&](const std::vector<Var>& x) { return without_prefix(with_prefix(x[0], k, v, 4), 4, 2); },
        {floats({20, 3 * C}, 3)}, {&k, &v});
    Param g = test::param("g", floats({2}, 4));
    expect_same_in_every_order(
        [&](const std::vector<Var>& x) {
          const std::vector<Var> y = altup_correct(std::vector<Var>{x[0], x[1]}, x[2], 1, g);
          return sigmoid_gate(y[0], y[1]);
        },
        {floats({300, C}, 5), floats({300, C}, 6), floats({300, C}, 7)}, {&g});
  }
}

TEST_F(SimStreams, MixturesAfterGeluGiveTheSameBitsInEveryOrder) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int64_t F : {8, 37}) {
      Param w = test::param("w", test::random({3, F, 5}, 1, type));
      Param b = test::param("b", floats({3, F}, 2));
      expect_same_in_every_order(
          [&](const std::vector<Var>& x) { return stream_gelu_mix(x[0], x[1], w, b); },
          {test::random({150, 5}, 3, type), floats({150, 3}, 4)}, {&w, &b});
    }
  }
}

TEST_F(SimStreams, TheirBalanceGivesTheSameBitsInEveryOrder) {
  for (const int64_t N : {3, 300}) {
    expect_same_in_every_order([](const std::vector<Var>& x) { return stream_balance(x[0], 2); },
                               {floats({600, N}, 1)}, {});
  }
}

TEST_F(SimStreams, TakeNoRows) {
  expect_same_in_every_order(streams, {floats({0, 8}, 1), floats({0, 4}, 2), floats({0, 3}, 3)},
                             {});
  Param k = test::param("k", floats({2, 3, 8}, 1)), v = test::param("v", floats({2, 3, 8}, 2));
  test::expect_devices_agree([&](const std::vector<Var>& x) { return with_prefix(x[0], k, v, 4); },
                             {floats({0, 24}, 3)}, {&k, &v}, DType::kF32);
  Param g = test::param("g", floats({2}, 4));
  test::expect_devices_agree(
      [&](const std::vector<Var>& x) {
        return altup_correct(std::vector<Var>{x[0], x[0]}, x[1], 1, g)[0];
      },
      {floats({0, 8}, 5), floats({0, 8}, 6)}, {&g}, DType::kF32);
}

// A part of x that begins at its second element.
Var unaligned(const Var& x) {
  const int64_t rows = x.dim(0) / 4 * 4 - 4;
  return x.value().view(1, {rows, x.dim(1)});
}

TEST_F(SimStreams, TakeViewsThatAreNotAligned) {
  const test::TestDevice gpu = test::devices().back();
  const std::vector<Tensor> xs{floats({12, 8}, 1), floats({12, 4}, 2), floats({36, 3}, 3)};
  const auto run = [&](const test::TestDevice& device) {
    const Var x = unaligned(Var(device.place(xs[0])));
    const Var a = unaligned(Var(device.place(xs[1])));
    const Var r = unaligned(Var(device.place(xs[2])));
    return streams({x, a, r}).value();
  };
  test::expect_near(run(gpu), test::values(run(test::devices().front())),
                    test::op_tolerance(DType::kF32), "y");
}

// No op reads from the device: what is asked of it runs when someone waits for it.
TEST_F(SimStreams, TheirBalanceIsNotWaitedFor) {
  const auto before = cuda_sim::options();
  cuda_sim::options().streams = cuda_sim::Streams::kLazy;
  const test::TestDevice gpu = test::devices().back();
  Tape tape;
  const Var g = tape.input(gpu.place(floats({60, 4}, 1)));
  const uint64_t kernels = cuda_sim::counters().kernels;
  const Var loss = stream_balance(g, 2);
  tape.backward(loss, gpu.place(Tensor::of<float>({1}, {1})));
  EXPECT_EQ(cuda_sim::counters().kernels, kernels);
  EXPECT_EQ(test::values(tape.take_grad(g)).size(), 240U);
  EXPECT_GT(cuda_sim::counters().kernels, kernels);
  cuda_sim::options() = before;
}

}  // namespace
}  // namespace anabranch
