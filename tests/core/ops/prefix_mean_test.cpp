#include "core/ops/prefix_mean.h"

#include <algorithm>

#include "tests/support/device_checks.h"

namespace anabranch {
namespace {

using Kind = MeanForm::Kind;

constexpr int64_t kBatch = 2;

test::Op op_of(MeanForm form, const Tensor& starts = {}) {
  return [form, starts](const Var& v) { return prefix_mean(v, kBatch, form, starts); };
}

// Documents of 3 and 2 tokens, and of 1 and 4.
Tensor documents() { return Tensor::of<int32_t>({2, 5}, {0, 0, 0, 3, 3, 0, 1, 1, 1, 1}); }

TEST(PrefixMean, IsTheEquationByHand) {
  const Tensor v = Tensor::of<double>({6, 1}, {1, 3, 8, 2, 4, 0});
  const auto values_of = [&](const MeanForm& form) {
    return test::values(prefix_mean(v, 2, form).value());
  };
  EXPECT_EQ(values_of({}), (std::vector<double>{1, 2, 4, 2, 3, 2}));
  EXPECT_EQ(values_of({Kind::kEma, 0.5}), (std::vector<double>{0.5, 1.75, 4.875, 1, 2.5, 1.25}));
  EXPECT_EQ(values_of({Kind::kGlobal}), (std::vector<double>{4, 4, 4, 2, 2, 2}));
}

// T9 of cMoLLM's checks: each place by a sum of its own over what it sees, and back.
TEST(PrefixMean, IsTheQuadraticSum) {
  const int64_t T = 37, C = 3, M = kBatch * T;
  Tensor starts({kBatch, T}, DType::kI32);
  for (int64_t i = 0; i < M; ++i) {
    starts.data<int32_t>()[i] = static_cast<int32_t>(i % T / (i < T ? 10 : 16) * (i < T ? 10 : 16));
  }
  const Tensor v = test::random({M, C}, 1), dc = test::random({M, C}, 2);
  for (const Tensor& documents : {Tensor(), starts}) {
    std::vector<double> c(static_cast<size_t>(M * C)), dv(c.size());
    for (int64_t i = 0; i < M; ++i) {
      const int64_t begin = i / T * T + (documents.empty() ? 0 : documents.data<int32_t>()[i]);
      for (int64_t s = begin; s <= i; ++s) {
        for (int64_t j = 0; j < C; ++j) {
          const auto seen = static_cast<double>(i - begin + 1);
          c[static_cast<size_t>(i * C + j)] += v.data<double>()[s * C + j] / seen;
          dv[static_cast<size_t>(s * C + j)] += dc.data<double>()[i * C + j] / seen;
        }
      }
    }
    Tape tape;
    const Var x = tape.input(v), y = prefix_mean(x, kBatch, {}, documents);
    tape.backward(y, dc);
    test::expect_near(y.value(), c, test::op_tolerance(DType::kF64), "c");
    test::expect_near(tape.take_grad(x), dv, test::op_tolerance(DType::kF64), "dv");
  }
}

TEST(PrefixMean, DocumentsStartAnew) {
  const Tensor v = Tensor::of<double>({5, 1}, {1, 3, 8, 2, 4});
  const Tensor starts = Tensor::of<int32_t>({1, 5}, {0, 0, 0, 3, 3});
  const Tensor c = prefix_mean(v, 1, {}, starts).value();
  EXPECT_EQ(test::values(c), (std::vector<double>{1, 2, 4, 2, 3}));
}

TEST(PrefixMean, GradientsAreThoseOfDifferences) {
  const Tensor v = test::random({10, 3}, 1);
  for (const Kind kind : {Kind::kPrefix, Kind::kEma, Kind::kGlobal}) {
    test::expect_gradients(op_of({kind, 0.8}), v, {});
    if (kind != Kind::kGlobal) test::expect_gradients(op_of({kind, 0.8}, documents()), v, {});
  }
}

// Documents that begin anywhere: at the ends of what a GPU's threads walk, too.
TEST(PrefixMean, DevicesAgree) {
  const int64_t T = 200;
  Tensor starts({kBatch, T}, DType::kI32);
  int32_t first = 0;
  for (int64_t i = 0; i < kBatch * T; ++i) {
    const int64_t t = i % T;
    const int64_t ends[] = {3, 64, 65, 127, 150, 180};
    if (t == 0 || (i > T && t == 192) || (i < T && std::ranges::count(ends, t) > 0)) {
      first = static_cast<int32_t>(t);
    }
    starts.data<int32_t>()[i] = first;
  }
  for (const DType type : test::kFloating) {
    for (const int64_t C : {3, 40}) {
      for (const Kind kind : {Kind::kPrefix, Kind::kEma, Kind::kGlobal}) {
        for (const bool documents : {false, true}) {
          if (documents && kind == Kind::kGlobal) continue;
          const auto op = [&](const std::vector<Var>& x) {
            const Tensor at = documents ? starts.copy_in(x[0].value().pool()) : Tensor();
            return prefix_mean(x[0], kBatch, {kind, 0.8}, at);
          };
          test::expect_devices_agree(op, {test::random({kBatch * T, C}, 1, type)}, {}, type);
        }
      }
    }
  }
}

TEST(PrefixMean, TypesAgree) { test::expect_types_agree(op_of({}), test::random({10, 70}, 1), {}); }

TEST(PrefixMean, Accumulates) { test::expect_accumulates(op_of({}), test::random({10, 3}, 1), {}); }

TEST(PrefixMean, ThreadsAgree) {
  test::expect_threads_agree(op_of({}), test::random({60, 200}, 1, DType::kF32), {});
}

TEST(PrefixMean, DecodingInPiecesIsTheWhole) {
  const int64_t T = 7, C = 3;
  const Tensor v = test::random({kBatch * T, C}, 1);
  for (const test::TestDevice& device : test::devices()) {
    for (const MeanForm& form : {MeanForm{}, MeanForm{Kind::kEma, 0.7}}) {
      const std::vector<double> whole = test::values(prefix_mean(v, kBatch, form).value());
      RunningMean state(device.place(v), kBatch, C);
      int64_t done[kBatch] = {};
      for (const std::vector<int64_t>& counts : {std::vector<int64_t>{3, 1}, {1, 2}, {2, 3}}) {
        const int64_t S = 3;
        Tensor rows({kBatch * S, C}, DType::kF64);
        rows.fill_zero();
        for (int64_t b = 0; b < kBatch; ++b) {
          const int64_t n = counts[static_cast<size_t>(b)];
          rows.view(b * S * C, {n * C}).copy_from(v.view((b * T + done[b]) * C, {n * C}));
        }
        const std::vector<double> c =
            test::values(prefix_mean_step(device.place(rows), counts, state, form));
        for (int64_t b = 0; b < kBatch; ++b) {
          for (int64_t i = 0; i < counts[static_cast<size_t>(b)] * C; ++i) {
            EXPECT_NEAR(c[static_cast<size_t>(b * S * C + i)],
                        whole[static_cast<size_t>((b * T + done[b]) * C + i)], 1e-14);
          }
          done[b] += counts[static_cast<size_t>(b)];
        }
      }
    }
  }
}

TEST(PrefixMean, DecodingTakesManySequences) {
  const int64_t B = 150;  // more than travel to a GPU at once
  const Tensor v = test::random({2 * B, 3}, 1);
  std::vector<int64_t> counts;
  for (int64_t b = 0; b < B; ++b) counts.push_back(b % 3);
  std::vector<double> want;
  for (const test::TestDevice& device : test::devices()) {
    RunningMean state(device.place(v), B, 3);
    prefix_mean_step(device.place(v), counts, state);
    const Tensor c = prefix_mean_step(device.place(v), counts, state);
    if (want.empty()) want = test::values(c);
    test::expect_near(c, want, test::op_tolerance(DType::kF64), device.name);
  }
}

TEST(PrefixMean, RefusesWhatDoesNotFit) {
  EXPECT_THROW(prefix_mean(test::random({5, 3}, 1), 2), Error);
  EXPECT_THROW(prefix_mean(test::random({4, 3}, 1), 2, {}, documents()), Error);
}

}  // namespace
}  // namespace anabranch
