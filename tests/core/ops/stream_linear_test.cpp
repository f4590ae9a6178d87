#include "core/ops/stream_linear.h"

#include <cmath>

#include "core/ops/add.h"
#include "core/ops/columns.h"
#include "core/ops/linear.h"
#include "core/ops/softmax.h"
#include "core/tensor/accumulate.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

struct Streams {
  Param w, b;

  Streams(int64_t N, int64_t F, int64_t C, DType type = DType::kF64)
      : w(test::param("w", test::random({N, F, C}, 1, type))),
        b(test::param("b", test::random({N, F}, 2, accumulator_of(type)))) {}
};

TEST(StreamLinear, IsTheEquationByHand) {
  // Two streams of one input and one output: U = g1 (2 s + 10) + g2 (3 s + 20).
  Param w = test::param("w", Tensor::of<double>({2, 1, 1}, {2, 3}));
  Param b = test::param("b", Tensor::of<double>({2, 1}, {10, 20}));
  for (const MixOrder order : {MixOrder::kScaled, MixOrder::kBranch}) {
    w.fresh = b.fresh = true;
    Tape tape;
    const Var s = tape.input(Tensor::of<double>({1, 1}, {5}));
    const Var g = tape.input(Tensor::of<double>({1, 2}, {0.25, 0.5}));
    const Var u = stream_linear(s, g, w, b, order);
    EXPECT_EQ(test::values(u.value()), (std::vector<double>{5 + 17.5}));
    tape.backward(u, Tensor::of<double>({1, 1}, {2}));
    EXPECT_EQ(test::values(tape.take_grad(s)), (std::vector<double>{2 * (0.5 + 1.5)}));
    EXPECT_EQ(test::values(tape.take_grad(g)), (std::vector<double>{40, 70}));
    EXPECT_EQ(test::values(w.grad), (std::vector<double>{2.5, 5}));
    EXPECT_EQ(test::values(b.grad), (std::vector<double>{0.5, 1}));
  }
}

TEST(StreamLinear, GradientsAreThoseOfDifferences) {
  Streams p(3, 5, 7);
  for (const MixOrder order : {MixOrder::kScaled, MixOrder::kBranch}) {
    test::expect_gradients(
        [&](const std::vector<Var>& x) { return stream_linear(x[0], x[1], p.w, p.b, order); },
        {test::random({4, 7}, 3), test::random({4, 3}, 4)}, {&p.w, &p.b});
  }
}

// Theorem 4.1: the sum of mixed products is the product with the mixed kernel.
TEST(StreamLinear, IsTheProductWithTheMixedKernel) {
  const int64_t M = 2500, N = 3, F = 9, C = 7;
  for (const DType type : {DType::kF32, DType::kF64}) {
    Streams p(N, F, C, type);
    const Tensor s = test::random({M, C}, 3, type), g = test::random({M, N}, 4, type);
    const std::vector<double> sv = test::values(s), gv = test::values(g),
                              wv = test::values(p.w.value), bv = test::values(p.b.value);
    std::vector<double> want;
    for (size_t i = 0; i < M; ++i) {
      for (size_t f = 0; f < F; ++f) {
        double sum = 0;
        for (size_t k = 0; k < N; ++k) sum += gv[i * N + k] * bv[k * F + f];
        for (size_t c = 0; c < C; ++c) {
          double kernel = 0;
          for (size_t k = 0; k < N; ++k) kernel += gv[i * N + k] * wv[(k * F + f) * C + c];
          sum += kernel * sv[i * C + c];
        }
        want.push_back(sum);
      }
    }
    for (const MixOrder order : {MixOrder::kScaled, MixOrder::kBranch}) {
      test::expect_near(stream_linear(s, g, p.w, p.b, order).value(), want,
                        test::op_tolerance(type), "U");
    }
  }
}

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

// ||got - want|| / ||want||
double relative_distance(const Tensor& got, const std::vector<double>& want) {
  std::vector<double> difference = test::values(got);
  AB_CHECK(difference.size() == want.size(), difference.size(), " values, not ", want.size());
  for (size_t i = 0; i < want.size(); ++i) difference[i] -= want[i];
  return norm(difference) / norm(want);
}

// U and the gradients by way of each row's mixed kernel, in float64: dK~_i = dU_i s_i^T, then
// dK_k = sum_i g_ik dK~_i, ds_i = K~_i^T dU_i, dg_ik = <K_k, dK~_i>. No biases.
struct MixedKernels {
  std::vector<double> u, dw, ds, dg;

  MixedKernels(const Tensor& s, const Tensor& g, const Tensor& w, const Tensor& du) {
    const auto M = static_cast<size_t>(s.dim(0)), N = static_cast<size_t>(g.dim(1));
    const auto F = static_cast<size_t>(w.dim(1)), C = static_cast<size_t>(w.dim(2));
    const auto sv = test::values(s), gv = test::values(g), wv = test::values(w),
               dy = test::values(du);
    u.resize(M * F);
    dw.resize(N * F * C);
    ds.resize(M * C);
    dg.resize(M * N);
    for (size_t i = 0; i < M; ++i) {
      for (size_t f = 0; f < F; ++f) {
        for (size_t c = 0; c < C; ++c) {
          double kernel = 0;
          for (size_t k = 0; k < N; ++k) kernel += gv[i * N + k] * wv[(k * F + f) * C + c];
          const double dkernel = dy[i * F + f] * sv[i * C + c];
          u[i * F + f] += kernel * sv[i * C + c];
          ds[i * C + c] += kernel * dy[i * F + f];
          for (size_t k = 0; k < N; ++k) {
            dw[(k * F + f) * C + c] += gv[i * N + k] * dkernel;
            dg[i * N + k] += wv[(k * F + f) * C + c] * dkernel;
          }
        }
      }
    }
  }
};

// T1 of the paper's checks: kernels of mode ffn and of mode pipeline.
TEST(StreamLinear, IsTheMixedKernelInNormWithAllGradients) {
  const int64_t M = 12, N = 4, C = 32;
  for (const DType type : {DType::kF32, DType::kF64}) {
    const double most = type == DType::kF32 ? 1e-6 : 1e-13;
    for (const int64_t F : {4 * C, C}) {
      Streams p(N, F, C, type);
      p.b.value.fill_zero();
      const Tensor s = test::random({M, C}, 3, type), du = test::random({M, F}, 5, type);
      const Tensor g = softmax(test::random({M, N}, 4, type)).value();
      const MixedKernels want(s, g, p.w.value, du);
      for (const MixOrder order : {MixOrder::kScaled, MixOrder::kBranch}) {
        p.w.fresh = p.b.fresh = true;
        Tape tape;
        const Var sv = tape.input(s), gv = tape.input(g);
        const Var u = stream_linear(sv, gv, p.w, p.b, order);
        tape.backward(u, du);
        EXPECT_LT(relative_distance(u.value(), want.u), most);
        EXPECT_LT(relative_distance(p.w.grad, want.dw), most);
        EXPECT_LT(relative_distance(tape.take_grad(sv), want.ds), most);
        EXPECT_LT(relative_distance(tape.take_grad(gv), want.dg), most);
      }
    }
  }
}

// T3: without a nonlinearity it does not matter whether kernels or experts' outputs are mixed.
TEST(StreamLinear, WithoutANonlinearityIsTheMixtureOfExperts) {
  const int64_t M = 6, N = 3, F = 8, C = 5;
  Streams p(N, F, C);
  Param down = test::param("down", test::random({C, F}, 5));
  Param down_bias = test::param("down bias", test::random({C}, 6));
  const Tensor s = test::random({M, C}, 3);
  const Tensor g = softmax(test::random({M, N}, 4)).value();
  std::vector<double> experts(static_cast<size_t>(M * C));
  for (int64_t k = 0; k < N; ++k) {
    Param w = test::param("w_k", p.w.value.view(k * F * C, {F, C}));
    Param b = test::param("b_k", p.b.value.view(k * F, {F}));
    const auto y = test::values(linear(linear(s, w, &b), down, &down_bias).value());
    for (size_t i = 0; i < y.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / C;
      experts[i] += g.data<double>()[row * N + k] * y[i];
    }
  }
  test::expect_near(linear(stream_linear(s, g, p.w, p.b), down, &down_bias).value(), experts,
                    test::op_tolerance(DType::kF64), "y");
}

TEST(StreamLinear, OneStreamIsLinearToTheBit) {
  Streams p(1, 33, 70, DType::kF32);
  Param w = test::param("plain w", p.w.value.reshape({33, 70}));
  Param b = test::param("plain b", p.b.value.reshape({33}));
  const Tensor s = test::random({300, 70}, 3, DType::kF32),
               one = test::full({300, 1}, 1, DType::kF32);
  EXPECT_TRUE(test::same_bytes(stream_linear(s, one, p.w, p.b).value(), linear(s, w, &b).value()));
}

struct Sizes {
  int64_t M, N, F, C;
};

// U, ds, dg, dK, db. Values that bf16 holds exactly, but for the gates.
std::vector<Tensor> results(DType type, const Sizes& n, SumType sums,
                            const test::TestDevice& device) {
  const auto rounded = [](Shape shape, uint32_t seed, DType to) {
    return test::cast(test::random(shape, seed, DType::kBF16), to);
  };
  const DType wide = accumulator_of(type);
  Param w = test::param("w", device.place(rounded({n.N, n.F, n.C}, 1, type)));
  Param b = test::param("b", device.place(rounded({n.N, n.F}, 2, wide)));
  Tape tape;
  const Var s = tape.input(device.place(rounded({n.M, n.C}, 3, type)));
  const Var g =
      tape.input(device.place(test::cast(test::random({n.M, n.N}, 4, DType::kF32), wide)));
  const Var u = stream_linear(s, g, w, b, MixOrder::kScaled, sums);
  EXPECT_EQ(u.dtype(), sums == SumType::kWide ? wide : type);
  tape.backward(u, device.place(rounded({n.M, n.F}, 9, type)));
  return {u.value(), tape.take_grad(s), tape.take_grad(g), w.grad, b.grad};
}

void expect_near_float64(const Sizes& n, SumType sums, const test::TestDevice& device) {
  const auto want = results(DType::kF64, n, sums, {"cpu", nullptr});
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    if (type == DType::kF64 && !device.pool) continue;
    const auto got = results(type, n, sums, device);
    for (size_t i = 0; i < got.size(); ++i) {
      double largest = 1;
      for (const double v : test::values(want[i])) largest = std::max(largest, std::abs(v));
      const auto tolerance = test::op_tolerance(type);
      test::expect_near(got[i], test::values(want[i]), {0, tolerance.absolute * largest},
                        join(device.name, " ", name_of(type), " result ", i));
    }
  }
}

TEST(StreamLinear, TypesAgree) {
  // More rows than a tile of the CPU has, forward and backward; no whole packs of elements; none.
  const std::vector<Sizes> sizes{{2200, 3, 21, 40}, {37, 9, 16, 24}, {6, 2, 5, 7}, {0, 2, 8, 8}};
  for (const test::TestDevice& device : test::devices()) {
    for (const Sizes& n : sizes) {
      for (const SumType sums : {SumType::kRounded, SumType::kWide}) {
        expect_near_float64(n, sums, device);
      }
    }
  }
}

TEST(StreamLinear, MoreRowsThanATileOfAGpu) {
  for (const test::TestDevice& device : test::devices()) {
    if (device.pool) expect_near_float64({8300, 2, 1, 1}, SumType::kRounded, device);
  }
}

TEST(StreamLinear, Accumulates) {
  Streams p(2, 5, 7);
  const Tensor g = test::random({4, 2}, 4);
  const auto op = [&](const Var& s) {
    return stream_linear(s, s.value().device().is_cuda() ? g.copy_in(s.value().pool()) : g, p.w,
                         p.b);
  };
  test::expect_accumulates(op, test::random({4, 7}, 3), {&p.w, &p.b});
}

TEST(StreamLinear, NoBufferHoldsTheProductsOfAllStreams) {
  const int64_t M = 16384, N = 8, F = 48, C = 32;
  Streams p(N, F, C, DType::kF32);
  for (const MixOrder order : {MixOrder::kScaled, MixOrder::kBranch}) {
    const auto pool = std::make_shared<Pool>();
    Tensor s({M, C}, DType::kF32, pool), g({M, N}, DType::kF32, pool),
        du({M, F}, DType::kF32, pool);
    for (Tensor* t : {&s, &g, &du}) t->copy_from(test::random(t->shape(), 3, DType::kF32));
    Tape tape;
    const Var x = tape.input(s), gates = tape.input(g);
    const Var u = stream_linear(x, gates, p.w, p.b, order);
    tape.backward(u, du);
    EXPECT_LT(pool->usage().peak, M * N * F * 4 / 2);
  }
}

// What a block of the streams makes: U, ds, dg, dK, db.
std::vector<Tensor> block_of_streams(const Streams& all, int64_t first, int64_t count,
                                     StreamOrder streams) {
  const int64_t F = all.w.value.dim(1), C = all.w.value.dim(2), M = 50;
  Param w = test::param("w", all.w.value.view(first * F * C, {count, F, C}));
  Param b = test::param("b", all.b.value.view(first * F, {count, F}));
  const Tensor gates = test::random({M, all.w.value.dim(0)}, 4, DType::kF32);
  Tensor mine({M, count}, DType::kF32);
  cpu::copy_columns(mine, gates, first);
  Tape tape;
  const Var s = tape.input(test::random({M, C}, 3, DType::kF32)), g = tape.input(mine);
  const Var u = stream_linear(s, g, w, b, MixOrder::kScaled, SumType::kWide, streams);
  tape.backward(u, test::random({M, F}, 9, DType::kF32));
  return {u.value(), tape.take_grad(s), tape.take_grad(g), w.grad, b.grad};
}

// So ranks may have equal blocks of streams and add what they make.
TEST(StreamLinear, ATreeIsMadeOfTheTreesOfItsBlocks) {
  const int64_t N = 8, F = 21, C = 40;
  const Streams all(N, F, C, DType::kF32);
  for (const StreamOrder order : {StreamOrder::kTree, StreamOrder::kRising}) {
    const auto whole = block_of_streams(all, 0, N, order);
    auto left = block_of_streams(all, 0, N / 2, order);
    const auto right = block_of_streams(all, N / 2, N / 2, order);
    for (const size_t i : {0U, 1U}) {  // U and ds
      accumulate(left[i], right[i]);
      EXPECT_EQ(test::same_bytes(left[i], whole[i]), order == StreamOrder::kTree) << i;
      test::expect_near(left[i], test::values(whole[i]), test::op_tolerance(DType::kF32), "sum");
    }
    EXPECT_TRUE(test::same_bytes(right[3], whole[3].view(N / 2 * F * C, {N / 2, F, C})));
    EXPECT_TRUE(test::same_bytes(right[4], whole[4].view(N / 2 * F, {N / 2, F})));
    Tensor dg(right[2].shape(), DType::kF32);
    cpu::copy_columns(dg, whole[2], N / 2);
    EXPECT_TRUE(test::same_bytes(right[2], dg));
  }
}

TEST(StreamLinear, ATreeHasTheGradientsOfDifferences) {
  Streams p(3, 5, 7);
  for (const MixOrder order : {MixOrder::kScaled, MixOrder::kBranch}) {
    const auto tree = [&](const Var& s, const Var& g) {
      return stream_linear(s, g, p.w, p.b, order, SumType::kRounded, StreamOrder::kTree);
    };
    test::expect_gradients([&](const std::vector<Var>& x) { return tree(x[0], x[1]); },
                           {test::random({4, 7}, 3), test::random({4, 3}, 4)}, {&p.w, &p.b});
    const auto twice = [&](const std::vector<Var>& x) {
      return add(tree(x[0], x[1]), tree(x[0], x[1]));  // gradients are added to what is there
    };
    test::expect_gradients(twice, {test::random({4, 7}, 3), test::random({4, 3}, 4)}, {&p.w, &p.b});
  }
}

TEST(StreamLinear, RefusesWhatDoesNotFit) {
  Streams p(2, 5, 7);
  const Tensor s = test::random({4, 7}, 1);
  EXPECT_THROW(stream_linear(s, test::random({4, 3}, 1), p.w, p.b), Error);
  EXPECT_THROW(stream_linear(test::random({4, 6}, 1), test::random({4, 2}, 1), p.w, p.b), Error);
  EXPECT_THROW(stream_linear(s, test::random({4, 2}, 1, DType::kF32), p.w, p.b), Error);
}

}  // namespace
}  // namespace anabranch
