#include "core/ops/attention.h"

#include <memory>

#include "core/base/parallel_for.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

// The equations of the header, one sum at a time, on doubles: y and, for a given dy, dqkv.
struct Plain {
  std::vector<double> y, dqkv;
};

Plain plain_attention(const Tensor& qkv, const Tensor& dy, int64_t batch, int64_t heads) {
  const int64_t tokens = qkv.dim(0) / batch, channels = qkv.dim(1) / 3, width = channels / heads;
  const std::vector<double> x = test::values(qkv), g = test::values(dy);
  Plain to{std::vector<double>(g.size()), std::vector<double>(x.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  for (int64_t bh = 0; bh < batch * heads; ++bh) {
    const int64_t row = bh / heads * tokens, column = bh % heads * width;
    // Part 0, 1, 2 is q, k, v.
    const auto at = [&](int64_t part, int64_t t, int64_t d) {
      return static_cast<size_t>((row + t) * 3 * channels + part * channels + column + d);
    };
    const auto out = [&](int64_t t, int64_t d) {
      return static_cast<size_t>((row + t) * channels + column + d);
    };
    for (int64_t i = 0; i < tokens; ++i) {
      std::vector<double> p(static_cast<size_t>(i + 1)), dp(p.size());
      double sum = 0, delta = 0;
      for (int64_t j = 0; j <= i; ++j) {
        double s = 0;
        for (int64_t d = 0; d < width; ++d) s += x[at(0, i, d)] * x[at(1, j, d)];
        sum += p[static_cast<size_t>(j)] = std::exp(s * scale);
      }
      for (int64_t j = 0; j <= i; ++j) {
        const auto k = static_cast<size_t>(j);
        p[k] /= sum;
        for (int64_t d = 0; d < width; ++d) {
          to.y[out(i, d)] += p[k] * x[at(2, j, d)];
          dp[k] += g[out(i, d)] * x[at(2, j, d)];
          to.dqkv[at(2, j, d)] += p[k] * g[out(i, d)];
        }
        delta += p[k] * dp[k];
      }
      for (int64_t j = 0; j <= i; ++j) {
        const double ds = p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - delta) * scale;
        for (int64_t d = 0; d < width; ++d) {
          to.dqkv[at(0, i, d)] += ds * x[at(1, j, d)];
          to.dqkv[at(1, j, d)] += ds * x[at(0, i, d)];
        }
      }
    }
  }
  return to;
}

struct Pass {
  Tensor y, dqkv;
};

Pass forward_and_back(const Tensor& qkv, const Tensor& dy, int64_t batch, int64_t heads) {
  Tape tape;
  const Var x = tape.input(qkv);
  const Var y = attention(x, batch, heads);
  tape.backward(y, dy);
  return {y.value(), tape.take_grad(x)};
}

TEST(Attention, TwoTokensByHand) {
  // D = 1: q = (1, 2), k = (0, ln 3), v = (10, 20). Row 1 has scores 0 and 2 ln 3: weights 1 : 9.
  const Tensor qkv = Tensor::of<double>({2, 3}, {1, 0, 10, 2, std::log(3.0), 20});
  const Var y = attention(Var(qkv), 1, 1);
  test::expect_near(y.value(), {10, 19}, test::op_tolerance(DType::kF64), "y");
  // dy = (0, 1): dv = p, ds_1j = p_j (v_j - y): 0.1 * -9 and 0.9 * 1.
  const Pass got = forward_and_back(qkv, Tensor::of<double>({2, 1}, {0, 1}), 1, 1);
  test::expect_near(got.dqkv, {0, -1.8, 0.1, 0.9 * std::log(3.0), 1.8, 0.9},
                    test::op_tolerance(DType::kF64), "dqkv");
}

TEST(Attention, GradientsByDifferences) {
  for (const auto& [tokens, width] :
       {std::pair<int64_t, int64_t>{1, 3}, {5, 3}, {9, 8}, {3, 17}, {67, 1}}) {
    test::expect_gradients([](const Var& x) { return attention(x, 2, 2); },
                           test::random({2 * tokens, 3 * 2 * width}, 1), {});
  }
}

TEST(Attention, EveryTypeMatchesTheEquationsAcrossBlockEdges) {
  struct Size {
    int64_t batch, tokens, heads, width;
  };

  for (const Size& size : {Size{1, 1, 1, 1},
                           {2, 17, 2, 5},
                           {1, 64, 1, 16},
                           {1, 65, 2, 64},
                           {2, 131, 1, 20},
                           {1, 200, 1, 96},
                           {1, 70, 1, 128},
                           {1, 193, 3, 7},
                           {1, 650, 1, 32}}) {
    const int64_t rows = size.batch * size.tokens, channels = size.heads * size.width;
    for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
      const Tensor qkv = test::random({rows, 3 * channels}, 1, type);
      const Tensor dy = test::random({rows, channels}, 2, type);
      const Plain want = plain_attention(qkv, dy, size.batch, size.heads);
      const Pass got = forward_and_back(qkv, dy, size.batch, size.heads);
      const std::string what = join(name_of(type), " T ", size.tokens, " D ", size.width);
      test::expect_near(got.y, want.y, test::op_tolerance(type), what + " y");
      test::expect_near(got.dqkv, want.dqkv, test::op_tolerance(type), what + " dqkv");
    }
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const int64_t tokens = 150, width = 8;
  for (const DType type : {DType::kF64, DType::kF32}) {
    Tensor qkv = test::random({tokens, 3 * width}, 1, DType::kF64);
    for (int64_t i = 0; i < qkv.count(); ++i) {
      if (i % (3 * width) < 2 * width)
        qkv.data<double>()[i] *= 12;  // scores beyond 88, where a float's exp ends
    }
    qkv = test::cast(test::cast(qkv, DType::kF32), type);
    const Tensor dy = test::random({tokens, width}, 2, type);
    const Plain want = plain_attention(qkv, dy, 1, 1);
    const Pass got = forward_and_back(qkv, dy, 1, 1);
    test::expect_near(got.y, want.y, test::op_tolerance(type), "y");
    for (const double g : test::values(got.dqkv)) ASSERT_TRUE(std::isfinite(g));
  }
}

TEST(Attention, NotANumberReachesWhatSeesIt) {
  Tensor qkv = test::random({100, 3 * 4}, 1, DType::kF32);
  qkv.data<float>()[70 * 12 + 4] = NAN;  // a key
  const std::vector<double> y = test::values(attention(Var(qkv), 1, 1).value());
  for (size_t t = 0; t < 100; ++t) EXPECT_EQ(std::isnan(y[t * 4]), t >= 70) << t;
}

TEST(Attention, ATokenChangesNothingBeforeIt) {
  const int64_t tokens = 150, channels = 2 * 32;
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Tensor qkv = test::random({tokens, 3 * channels}, 1, type);
    const std::vector<double> before = test::values(attention(Var(qkv), 1, 2).value());
    for (const int64_t changed : {0, 1, 63, 64, 100, 149}) {
      Tensor other = qkv.clone();
      Tensor row = other.view(changed * 3 * channels, {3 * channels});
      row.copy_from(test::full({3 * channels}, 3, type));
      const std::vector<double> after = test::values(attention(Var(other), 1, 2).value());
      const auto edge = static_cast<size_t>(changed * channels);
      for (size_t i = 0; i < edge; ++i) ASSERT_EQ(after[i], before[i]) << changed;
      EXPECT_NE(after[edge], before[edge]);
    }
  }
}

TEST(Attention, SequencesAndHeadsAreIndependent) {
  const int64_t tokens = 70, width = 8, heads = 2;
  const Tensor qkv = test::random({3 * tokens, 3 * heads * width}, 1, DType::kF32);
  const std::vector<double> all = test::values(attention(Var(qkv), 3, heads).value());
  const int64_t size = tokens * 3 * heads * width;
  const Tensor middle = qkv.view(size, {tokens, 3 * heads * width});
  const std::vector<double> one = test::values(attention(Var(middle), 1, heads).value());
  for (size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i], all[one.size() + i]);
}

TEST(Attention, TheGradientAccumulates) {
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Tensor qkv = test::random({70, 3 * 64}, 1, type), dy = test::random({70, 64}, 2, type);
    Tape tape;
    const Var x = tape.input(qkv);
    const Var first = attention(x, 1, 2), second = attention(x, 1, 2);
    const Var both = tape.record("both", first.value(), {}, [=](Tape& t, const Tensor& g) {
      t.give(first, g);
      t.give(second, g);
    });
    tape.backward(both, dy);
    std::vector<double> twice = test::values(forward_and_back(qkv, dy, 1, 2).dqkv);
    for (double& g : twice) g *= 2;
    test::expect_near(tape.take_grad(x), twice, test::op_tolerance(type), "dqkv");
  }
}

TEST(Attention, ThreadsDoNotChangeABit) {
  const int kept = thread_count();

  struct Size {
    DType type;
    int64_t batch, tokens, heads, width;
  };

  for (const Size& size : {Size{DType::kF32, 2, 100, 3, 8},
                           {DType::kBF16, 2, 100, 3, 32},
                           {DType::kBF16, 1, 600, 1, 64}}) {
    const int64_t rows = size.batch * size.tokens, channels = size.heads * size.width;
    const Tensor qkv = test::random({rows, 3 * channels}, 1, size.type);
    const Tensor dy = test::random({rows, channels}, 2, size.type);
    set_thread_count(1);
    const Pass one = forward_and_back(qkv, dy, size.batch, size.heads);
    for (const int threads : {2, 3, 5}) {
      set_thread_count(threads);
      const Pass many = forward_and_back(qkv, dy, size.batch, size.heads);
      EXPECT_EQ(thread_count(), threads);
      EXPECT_EQ(test::values(many.y), test::values(one.y));
      EXPECT_EQ(test::values(many.dqkv), test::values(one.dqkv));
    }
  }
  set_thread_count(kept);
}

TEST(Attention, NoBufferGrowsWithTheSquareOfTheTokens) {
  const int kept = thread_count();
  set_thread_count(1);
  for (const auto& [type, width] :
       {std::pair<DType, int64_t>{DType::kF32, 8}, {DType::kBF16, 32}}) {
    const auto peak = [type = type, width = width](int64_t tokens) {
      const auto pool = std::make_shared<Pool>();
      Tensor qkv({tokens, 3 * width}, type, pool), dy({tokens, width}, type, pool);
      qkv.copy_from(test::random(qkv.shape(), 1, type));
      dy.copy_from(test::random(dy.shape(), 2, type));
      forward_and_back(qkv, dy, 1, 1);
      return pool->usage().peak;
    };
    EXPECT_LT(peak(512), 512 * 512 * 4);
    EXPECT_LT(peak(2048) - peak(1024), 1.01 * static_cast<double>(2 * (peak(1024) - peak(512))));
  }
  set_thread_count(kept);
}

TEST(Attention, RefusesWhatDoesNotDivide) {
  const Tensor qkv = test::random({6, 12}, 1);
  EXPECT_THROW(attention(Var(qkv), 4, 2), Error);
  EXPECT_THROW(attention(Var(qkv), 2, 3), Error);
  EXPECT_THROW(attention(Var(qkv), 0, 2), Error);
  EXPECT_THROW(attention(Var(qkv), 2, 0), Error);
  EXPECT_THROW(attention(Var(qkv.reshape({72})), 2, 2), Error);
}

}  // namespace
}  // namespace anabranch
