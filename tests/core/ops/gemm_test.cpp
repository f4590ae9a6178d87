#include "core/ops/gemm.h"

#include "core/base/parallel_for.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate, bias;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t m : {1, 7, 33}) {
    for (const int64_t n : {1, 33}) {
      for (const int64_t k : {1, 65}) {
        for (int bits = 0; bits < 16; ++bits) {
          all.push_back(
              {m, n, k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0});
        }
      }
    }
  }
  all.push_back({2100, 33, 7, false, true, true, true});  // more than a piece of rows
  all.push_back({2100, 33, 7, true, false, true, false});
  return all;
}

// The defining sum, in double.
std::vector<double> by_hand(const Case& s, const Tensor& a, const Tensor& b, const Tensor& c,
                            const Tensor& bias) {
  const auto as = test::values(a), bs = test::values(b), biases = test::values(bias);
  std::vector<double> sums = test::values(c);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double& sum = sums[static_cast<size_t>(i * s.n + j)];
      if (!s.accumulate) sum = 0;
      if (s.bias) sum += biases[static_cast<size_t>(j)];
      for (int64_t l = 0; l < s.k; ++l) {
        sum += as[static_cast<size_t>(s.transpose_a ? l * s.m + i : i * s.k + l)] *
               bs[static_cast<size_t>(s.transpose_b ? j * s.k + l : l * s.n + j)];
      }
    }
  }
  return sums;
}

void run(const Case& s, DType in, DType out, const std::vector<test::TestDevice>& devices) {
  const Tensor a = test::random(s.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1, in);
  const Tensor b = test::random(s.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2, in);
  const Tensor bias = test::random({s.n}, 3, accumulator_of(in));
  const Tensor before = test::random({s.m, s.n}, 4, out);
  const std::vector<double> want = by_hand(s, a, b, before, bias);
  for (const test::TestDevice& device : devices) {
    Tensor c = device.place(before.clone());
    const Tensor placed = device.place(bias);
    gemm(c, device.place(a), device.place(b),
         {s.transpose_a, s.transpose_b, s.accumulate, s.bias ? &placed : nullptr});
    test::expect_near(
        c, want, test::op_tolerance(out),
        join(device.name, ", ", name_of(in), " to ", name_of(out), ", m ", s.m, " n ", s.n, " k ",
             s.k, s.transpose_a ? " a transposed" : "", s.transpose_b ? " b transposed" : "",
             s.accumulate ? " accumulate" : "", s.bias ? " bias" : ""));
  }
}

TEST(Gemm, Float64IsTheDefiningSum) {
  const auto devices = test::devices();
  for (const Case& s : cases()) run(s, DType::kF64, DType::kF64, devices);
}

TEST(Gemm, FloatIsTheDefiningSum) {
  const auto devices = test::devices();
  for (const Case& s : cases()) run(s, DType::kF32, DType::kF32, devices);
}

TEST(Gemm, Bf16IsTheDefiningSumRounded) {
  const auto devices = test::devices();
  for (const Case& s : cases()) {
    run(s, DType::kBF16, DType::kF32, devices);
    run(s, DType::kBF16, DType::kBF16, devices);
  }
}

TEST(Gemm, RowsNeedNotBePacked) {
  const Tensor a = test::random({5, 9}, 1, DType::kF32), b = test::random({4, 11}, 2, DType::kF32);
  Tensor c = test::full({5, 8}, 7, DType::kF32);
  cpu::gemm<float, float>(c.data<float>(), a.data<float>(), b.data<float>(),
                          {.m = 5, .n = 4, .k = 9, .transpose_b = true, .ldb = 11, .ldc = 8});
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      double want = j < 4 ? 0 : 7;
      for (int64_t l = 0; l < 9 && j < 4; ++l) {
        want += double{a.data<float>()[i * 9 + l]} * double{b.data<float>()[j * 11 + l]};
      }
      EXPECT_NEAR(c.data<float>()[i * 8 + j], want, 1e-5);
    }
  }
}

TEST(Gemm, EveryRowIsFinalWhenItIsHandedOn) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    const Tensor a = test::random({2100, 3}, 1, type), b = test::random({3, 5}, 2, type);
    const Tensor bias = test::full({5}, 4, accumulator_of(type));
    Tensor c({2100, 5}, type), seen({2100, 5}, type);
    const auto copy = [&](int64_t begin, int64_t end) {
      const Shape shape{end - begin, 5};
      seen.view(begin * 5, shape).copy_from(c.view(begin * 5, shape));
    };
    const RangeBody after(copy);
    gemm(c, a, b, {.bias = &bias, .after = &after});
    EXPECT_EQ(test::values(seen), test::values(c));
  }
}

TEST(Gemm, AnEmptyInnerAxisGivesZeroOrTheBias) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    const Tensor a({3, 0}, type), b({0, 2}, type);
    const Tensor bias = test::full({2}, 4, accumulator_of(type));
    Tensor c = test::full({3, 2}, 5, type);
    cpu::GemmShape s{3, 2, 0};
    dispatch(type, [&]<class T>() {
      cpu::GemmEnd<Accumulator<T>> end;
      end.bias = bias.data<Accumulator<T>>();
      cpu::gemm<T, T>(c.data<T>(), a.data<T>(), b.data<T>(), s, end);
    });
    EXPECT_EQ(test::values(c), std::vector<double>(6, 4)) << name_of(type);
  }
}

TEST(Gemm, Float64DoesNotDependOnTheNumberOfThreads) {
  const Tensor a = test::random({33, 65}, 1), b = test::random({65, 70}, 2);
  const int threads = thread_count();
  std::vector<std::vector<double>> results;
  for (const int count : {1, 2, 5}) {
    set_thread_count(count);
    Tensor c({33, 70}, DType::kF64);
    gemm(c, a, b);
    results.push_back(test::values(c));
  }
  set_thread_count(threads);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  Tensor c({2, 3}, DType::kF32);
  const Tensor a({2, 4}, DType::kF32), b({3, 4}, DType::kF32), half({4, 3}, DType::kBF16);
  EXPECT_THROW(gemm(c, a, b), Error);
  EXPECT_THROW(gemm(c, a, half), Error);
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    EXPECT_THROW(gemm(c, device.place(a), device.place(b), {.transpose_b = true}), Error);
    EXPECT_THROW(gemm(c, a, device.place(b), {.transpose_b = true}), Error);
  }
  EXPECT_NO_THROW(gemm(c, a, b, {.transpose_b = true}));
}

}  // namespace
}  // namespace anabranch
