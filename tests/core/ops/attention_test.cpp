#include "core/ops/attention.h"

#include <memory>

#include "core/base/parallel_for.h"
#include "tests/core/ops/attention_case.h"

namespace anabranch {
namespace {

TEST(Attention, TwoTokensByHand) {
  // D = 1: q = (1, 2), k = (0, ln 3), v = (10, 20). Row 1 has scores 0 and 2 ln 3: weights 1 : 9.
  const Tensor qkv = Tensor::of<double>({2, 3}, {1, 0, 10, 2, std::log(3.0), 20});
  const Var y = attention(Var(qkv), 1, 1);
  test::expect_near(y.value(), {10, 19}, test::op_tolerance(DType::kF64), "y");
  // dy = (0, 1): dv = p, ds_1j = p_j (v_j - y): 0.1 * -9 and 0.9 * 1.
  const test::Pass got = test::forward_and_back(qkv, Tensor::of<double>({2, 1}, {0, 1}), 1, 1);
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

TEST(Attention, GradientsByDifferencesFromAFirstKey) {
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{5, 3}, {9, 8}, {67, 1}}) {
    const Tensor first = test::random_first_keys(2, tokens, 4);
    test::expect_gradients([&](const Var& x) { return attention(x, 2, 2, first); },
                           test::random({2 * tokens, 3 * 2 * width}, 1), {});
  }
}

TEST(Attention, GradientsByDifferencesUpToALastKey) {
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{5, 3}, {9, 8}, {67, 1}}) {
    const Tensor first = test::random_first_keys(2, tokens, 4),
                 last = test::random_last_keys(2, tokens, 4);
    for (const Tensor& from : {first, Tensor()}) {
      test::expect_gradients([&](const Var& x) { return attention(x, 2, 2, from, last); },
                             test::random({2 * tokens, 3 * 2 * width}, 1), {});
    }
  }
}

// What a token sees after it decides of it; here a NaN that is not seen by it.
TEST(Attention, ATokenSeesUpToItsLastKeyAndNoFurther) {
  constexpr int64_t kTokens = 150;
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    Tensor last({1, kTokens}, DType::kI32);
    for (int32_t t = 0; t < kTokens; ++t) {
      last.data<int32_t>()[t] = std::min<int32_t>(t + 5, kTokens - 1);
    }
    Tensor qkv = test::random({kTokens, 3 * 32}, 1, type);
    qkv.view(100 * 96 + 32, {32}).copy_from(test::full({32}, NAN, type));
    const std::vector<double> y = test::values(attention(Var(qkv), 1, 1, {}, last).value());
    for (size_t t = 0; t < kTokens; ++t) {
      EXPECT_EQ(std::isnan(y[t * 32]), t >= 95) << name_of(type) << " " << t;
    }
  }
}

TEST(Attention, OneselfAsTheLastKeyIsCausalToTheBit) {
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{67, 5}, {200, 32}, {650, 64}}) {
    Tensor last({2, tokens}, DType::kI32);
    for (int64_t i = 0; i < 2 * tokens; ++i) {
      last.data<int32_t>()[i] = static_cast<int32_t>(i % tokens);
    }
    const Tensor first = test::random_first_keys(2, tokens, 50);
    for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
      const Tensor qkv = test::random({2 * tokens, 3 * width}, 1, type);
      const Tensor dy = test::random({2 * tokens, width}, 2, type);
      for (const Tensor& from : {first, Tensor()}) {
        const test::Pass want = test::forward_and_back(qkv, dy, 2, 1, from);
        const test::Pass got = test::forward_and_back(qkv, dy, 2, 1, from, last);
        EXPECT_EQ(test::values(got.y), test::values(want.y)) << name_of(type) << " T " << tokens;
        EXPECT_EQ(test::values(got.dqkv), test::values(want.dqkv)) << name_of(type);
      }
    }
  }
}

TEST(Attention, FirstKeysOfZeroAreNoBoundToTheBit) {
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{67, 5}, {200, 32}, {650, 64}}) {
    Tensor zeros({2, tokens}, DType::kI32);
    zeros.fill_zero();
    for (const test::TestDevice& device : test::devices()) {
      if (device.pool && tokens > 100) continue;  // a simulator takes long
      for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
        const Tensor qkv = test::random({2 * tokens, 3 * width}, 1, type);
        const Tensor dy = test::random({2 * tokens, width}, 2, type);
        const test::Pass want = test::forward_and_back(qkv, dy, 2, 1, {}, {}, device);
        const test::Pass got = test::forward_and_back(qkv, dy, 2, 1, zeros, {}, device);
        EXPECT_EQ(test::values(got.y), test::values(want.y)) << name_of(type) << " T " << tokens;
        EXPECT_EQ(test::values(got.dqkv), test::values(want.dqkv)) << name_of(type);
      }
    }
  }
}

// Three documents of tokens that no block of the next one reads: what is in them does not matter,
// not even a NaN, which no weight of 0 would hide.
void expect_blocks_are_not_read(const test::TestDevice& device, DType type) {
  constexpr int64_t kWidth = 32;
  const int64_t document = device.pool ? 64 : 192, tokens = 3 * document;
  Tensor first({1, tokens}, DType::kI32);
  for (int64_t t = 0; t < tokens; ++t) {
    first.data<int32_t>()[t] = static_cast<int32_t>(t / document * document);
  }
  const Tensor qkv = test::random({tokens, 3 * kWidth}, 1, type);
  const Tensor dy = test::random({tokens, kWidth}, 2, type);
  const test::Pass want = test::forward_and_back(qkv, dy, 1, 1, first, {}, device);
  Tensor other = qkv.clone();
  other.view(document * 3 * kWidth, {document, 3 * kWidth})
      .copy_from(test::full({document, 3 * kWidth}, NAN, type));
  const test::Pass got = test::forward_and_back(other, dy, 1, 1, first, {}, device);
  const auto same = [&](const Tensor& a, const Tensor& b, int64_t columns) {
    const std::vector<double> x = test::values(a), y = test::values(b);
    for (size_t i = 0; i < x.size(); ++i) {
      const bool touched = static_cast<int64_t>(i) / columns / document == 1;
      ASSERT_EQ(std::isnan(x[i]), touched) << device.name << name_of(type) << " " << i;
      if (touched) continue;
      ASSERT_EQ(x[i], y[i]) << device.name << name_of(type) << " " << i;
    }
  };
  same(got.y, want.y, kWidth);
  same(got.dqkv, want.dqkv, 3 * kWidth);
}

TEST(Attention, BlocksBeforeTheFirstKeysAreNotRead) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
      expect_blocks_are_not_read(device, type);
    }
  }
}

struct Size {
  int64_t batch, tokens, heads, width;
  uint32_t longest = 0;  // document; 0: no first keys
};

// Across the edges of blocks, from all keys (longest 0) and from first keys of documents; up to the
// token and up to last keys.
TEST(Attention, EveryTypeMatchesTheEquations) {
  for (const Size& size : {Size{1, 1, 1, 1},
                           {2, 17, 2, 5},
                           {1, 64, 1, 16},
                           {1, 65, 2, 64},
                           {2, 131, 1, 20},
                           {1, 200, 1, 96},
                           {1, 70, 1, 128},
                           {1, 193, 3, 7},
                           {1, 650, 1, 32},
                           {2, 17, 2, 5, 3},
                           {2, 65, 1, 64, 20},
                           {3, 131, 2, 20, 40},
                           {2, 193, 3, 7, 9},
                           {2, 257, 1, 96, 100},
                           {2, 333, 1, 32, 1},
                           {2, 1100, 1, 32, 700},
                           {2, 1217, 1, 64, 80}}) {
    const int64_t rows = size.batch * size.tokens, channels = size.heads * size.width;
    const Tensor first = size.longest == 0
                             ? Tensor()
                             : test::random_first_keys(size.batch, size.tokens, size.longest);
    for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
      const Tensor qkv = test::random({rows, 3 * channels}, 1, type);
      const Tensor dy = test::random({rows, channels}, 2, type);
      const auto longest = size.longest == 0 ? 1000 : size.longest;
      for (const Tensor& last :
           {Tensor(), test::random_last_keys(size.batch, size.tokens, longest)}) {
        const test::Plain want =
            test::plain_attention(qkv, dy, size.batch, size.heads, first, last);
        const test::Pass got = test::forward_and_back(qkv, dy, size.batch, size.heads, first, last);
        const std::string what =
            join(name_of(type), " T ", size.tokens, " D ", size.width, " documents of ",
                 size.longest, last.empty() ? ", causal" : ", both ways");
        test::expect_near(got.y, want.y, test::op_tolerance(type), what + " y");
        test::expect_near(got.dqkv, want.dqkv, test::op_tolerance(type), what + " dqkv");
      }
    }
  }
}

// Every kernel of a GPU, which are chosen by the width, with rows and keys that end in a tile.
TEST(Attention, EveryDeviceMatchesTheEquations) {
  for (const test::TestDevice& device : test::devices()) {
    for (const Size& size : {Size{1, 1, 1, 1},
                             {2, 17, 2, 5},
                             {1, 150, 1, 64},
                             {1, 70, 1, 96},
                             {1, 67, 1, 128},
                             {1, 45, 2, 136},
                             {2, 65, 1, 20, 20},
                             {1, 150, 1, 64, 60},
                             {2, 67, 1, 88, 20},
                             {2, 40, 1, 128, 20},
                             {2, 40, 1, 130, 20}}) {
      const int64_t rows = size.batch * size.tokens, channels = size.heads * size.width;
      const Tensor first = size.longest == 0
                               ? Tensor()
                               : test::random_first_keys(size.batch, size.tokens, size.longest);
      const Tensor last = test::random_last_keys(size.batch, size.tokens, size.longest + 1);
      for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
        const Tensor qkv = test::random({rows, 3 * channels}, 1, type);
        const Tensor dy = test::random({rows, channels}, 2, type);
        for (const Tensor& up_to : {Tensor(), last}) {
          if (!up_to.empty() && size.longest == 0) continue;
          const test::Plain want =
              test::plain_attention(qkv, dy, size.batch, size.heads, first, up_to);
          const test::Pass got =
              test::forward_and_back(qkv, dy, size.batch, size.heads, first, up_to, device);
          const std::string what =
              join(device.name, " ", name_of(type), " T ", size.tokens, " D ", size.width,
                   " documents of ", size.longest, up_to.empty() ? ", causal" : ", both ways");
          test::expect_near(got.y, want.y, test::op_tolerance(type), what + " y");
          test::expect_near(got.dqkv, want.dqkv, test::op_tolerance(type), what + " dqkv");
        }
      }
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
    const test::Plain want = test::plain_attention(qkv, dy, 1, 1);
    for (const test::TestDevice& device : test::devices()) {
      const test::Pass got = test::forward_and_back(qkv, dy, 1, 1, {}, {}, device);
      test::expect_near(got.y, want.y, test::op_tolerance(type), device.name);
      for (const double g : test::values(got.dqkv)) ASSERT_TRUE(std::isfinite(g)) << device.name;
    }
  }
}

TEST(Attention, NotANumberReachesWhatSeesIt) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Tensor qkv = test::random({100, 3 * 4}, 1, type);
    qkv.view(70 * 12 + 4, {1}).copy_from(test::full({1}, NAN, type));  // a key
    for (const test::TestDevice& device : test::devices()) {
      const std::vector<double> y = test::values(attention(device.place(qkv), 1, 1).value());
      for (size_t t = 0; t < 100; ++t) EXPECT_EQ(std::isnan(y[t * 4]), t >= 70) << t;
    }
  }
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
  const int64_t size = tokens * 3 * heads * width;
  for (const test::TestDevice& device : test::devices()) {
    const Tensor there = device.place(qkv), middle = there.view(size, {tokens, 3 * heads * width});
    const std::vector<double> all = test::values(attention(there, 3, heads).value());
    const std::vector<double> one = test::values(attention(middle, 1, heads).value());
    for (size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i], all[one.size() + i]) << device.name;
  }
}

TEST(Attention, TheGradientAccumulates) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
      for (const int64_t width : {32, 132}) {
        const Tensor qkv = test::random({70, 3 * 2 * width}, 1, type);
        const Tensor dy = test::random({70, 2 * width}, 2, type);
        Tape tape;
        const Var x = tape.input(device.place(qkv));
        const Var first = attention(x, 1, 2), second = attention(x, 1, 2);
        const Var both = tape.record("both", first.value(), {}, [=](Tape& t, const Tensor& g) {
          t.give(first, g);
          t.give(second, g);
        });
        tape.backward(both, device.place(dy));
        std::vector<double> twice = test::values(test::forward_and_back(qkv, dy, 1, 2).dqkv);
        for (double& g : twice) g *= 2;
        test::expect_near(tape.take_grad(x), twice, test::op_tolerance(type), device.name);
      }
    }
  }
}

TEST(Attention, ThreadsDoNotChangeABit) {
  const int kept = thread_count();

  struct Typed {
    DType type;
    int64_t batch, tokens, heads, width;
  };

  for (const Typed& size : {Typed{DType::kF32, 2, 100, 3, 8},
                            {DType::kBF16, 2, 100, 3, 32},
                            {DType::kBF16, 1, 600, 1, 64}}) {
    const int64_t rows = size.batch * size.tokens, channels = size.heads * size.width;
    const Tensor qkv = test::random({rows, 3 * channels}, 1, size.type);
    const Tensor dy = test::random({rows, channels}, 2, size.type);
    for (const Tensor& first : {Tensor(), test::random_first_keys(size.batch, size.tokens, 90)}) {
      const Tensor last =
          first.empty() ? Tensor() : test::random_last_keys(size.batch, size.tokens, 70);
      set_thread_count(1);
      const test::Pass one = test::forward_and_back(qkv, dy, size.batch, size.heads, first, last);
      for (const int threads : {2, 3, 5}) {
        set_thread_count(threads);
        const test::Pass many =
            test::forward_and_back(qkv, dy, size.batch, size.heads, first, last);
        EXPECT_EQ(thread_count(), threads);
        EXPECT_EQ(test::values(many.y), test::values(one.y));
        EXPECT_EQ(test::values(many.dqkv), test::values(one.dqkv));
      }
    }
  }
  set_thread_count(kept);
}

TEST(Attention, NoBufferGrowsWithTheSquareOfTheTokens) {
  const int kept = thread_count();
  set_thread_count(1);
  for (const auto& [type, width] :
       {std::pair<DType, int64_t>{DType::kF32, 8}, {DType::kBF16, 32}}) {
    const auto peak = [type = type, width = width](int64_t tokens, bool bounded = true) {
      const auto pool = std::make_shared<Pool>();
      Tensor qkv({tokens, 3 * width}, type, pool), dy({tokens, width}, type, pool);
      qkv.copy_from(test::random(qkv.shape(), 1, type));
      dy.copy_from(test::random(dy.shape(), 2, type));
      test::forward_and_back(qkv, dy, 1, 1,
                             bounded ? test::random_first_keys(1, tokens, 300) : Tensor());
      return pool->usage().peak;
    };
    EXPECT_LT(peak(512), 512 * 512 * 4);
    EXPECT_LT(peak(512), 1.05 * static_cast<double>(peak(512, false)));
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

TEST(Attention, RefusesLastKeysOutOfOrder) {
  const Var qkv(test::random({6, 12}, 1));
  const auto with = [&](Shape shape, std::vector<int32_t> last) {
    return attention(qkv, 2, 2, {}, Tensor::of<int32_t>(shape, last));
  };
  EXPECT_NO_THROW(with({2, 3}, {0, 1, 2, 1, 2, 2}));
  EXPECT_THROW(with({2, 3}, {0, 1, 2, 2, 1, 2}), Error);
  EXPECT_THROW(with({2, 3}, {0, 0, 2, 0, 1, 2}), Error);
  EXPECT_THROW(with({2, 3}, {0, 1, 3, 0, 1, 2}), Error);
  EXPECT_THROW(with({3, 2}, {1, 1, 1, 1, 1, 1}), Error);
}

TEST(Attention, RefusesFirstKeysOutOfOrder) {
  const Var qkv(test::random({6, 12}, 1));
  const auto with = [&](Shape shape, std::vector<int32_t> first) {
    return attention(qkv, 2, 2, Tensor::of<int32_t>(shape, first));
  };
  EXPECT_NO_THROW(with({2, 3}, {0, 1, 2, 0, 0, 1}));
  EXPECT_THROW(with({2, 3}, {0, 1, 0, 0, 0, 0}), Error);
  EXPECT_THROW(with({2, 3}, {0, 0, 0, 0, 2, 2}), Error);
  EXPECT_THROW(with({2, 3}, {-1, 0, 0, 0, 0, 0}), Error);
  EXPECT_THROW(with({2, 3}, {0, 0, 0, 1, 1, 1}), Error);
  EXPECT_THROW(with({3, 2}, {0, 0, 0, 0, 0, 0}), Error);
  EXPECT_THROW(attention(qkv, 2, 2, test::random({2, 3}, 1)), Error);
}

}  // namespace
}  // namespace anabranch
