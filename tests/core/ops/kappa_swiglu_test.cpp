#include "core/ops/kappa_swiglu.h"

#include <utility>

#include "core/ops/swiglu.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using test::param;

// The second group is empty; a tile has 64 rows.
const Groups kGroups{{0, 2, 2, 6, 7}};
const Groups kTiles{{0, 70, 70, 300, 301}};
const Kappa kAuthors{3, 0.3, 2, 0.1};

// `t` where x is, in its accumulator's type.
Tensor beside(const Var& x, const Tensor& t) {
  return test::cast(t, accumulator_of(x.dtype())).copy_in(x.value().pool());
}

TEST(KappaSwiglu, IsTheEquationByHand) {
  // tanh(t) = 1/2 with U = 4: kappa 2; kappa z = ln 3: s = 3/4.
  const double t = std::atanh(0.5), z = std::log(3.0) / 2;
  Param alpha = param("alpha", Tensor::of<double>({1, 1}, {(t - 0.3) / 0.5}));
  Param b = param("b", Tensor::of<double>({1, 1}, {0.1}));
  Tape tape;
  const Var x = tape.input(Tensor::of<double>({1, 2}, {z, 5}));
  const Var score = tape.input(Tensor::of<double>({1}, {0.25}));
  const Var h = kappa_swiglu(x, score, &alpha, &b, {{0, 1}}, {4, 2, 3, 0.1});
  const auto tolerance = test::op_tolerance(DType::kF64);
  test::expect_near(h.value(), {0.75 * z * 5}, tolerance, "h");
  tape.backward(h, Tensor::of<double>({1, 1}, {7}));
  const double slope = 3.0 / 16, dt = 7 * 5 * z * z * slope * 2 * std::log(4.0) * 0.75;
  test::expect_near(tape.take_grad(x), {7 * 5 * (0.75 + 2 * z * slope), 7 * 0.75 * z}, tolerance,
                    "dx");
  test::expect_near(alpha.grad, {dt * 2 * 0.25}, tolerance, "dalpha");
  test::expect_near(b.grad, {dt * 3}, tolerance, "db");
  test::expect_near(tape.take_grad(score), {0.1 * dt * 2 * alpha.value.data<double>()[0]},
                    tolerance, "dscore");
}

struct Terms {
  Param alpha, b;

  explicit Terms(const Groups& groups, int64_t width, DType type = DType::kF64)
      : alpha(param("alpha", test::random({groups.count(), width}, 4, type))),
        b(param("b", test::random({groups.count(), width}, 5, type))) {}
};

TEST(KappaSwiglu, GradientsAreThoseOfDifferences) {
  Terms w(kGroups, 67);
  const Tensor x = test::random({7, 134}, 1), scores = test::random({7}, 2);
  Kappa kappa = kAuthors;
  kappa.router_grad_scale = 1;
  const auto of_x = [&](const Var& v) {
    return kappa_swiglu(v, scores, &w.alpha, &w.b, kGroups, kappa);
  };
  test::expect_gradients(of_x, x, {&w.alpha, &w.b});
  const auto of_score = [&](const Var& v) {
    return kappa_swiglu(x, v, &w.alpha, &w.b, kGroups, kappa);
  };
  test::expect_gradients(of_score, scores, {&w.alpha, &w.b});
}

TEST(KappaSwiglu, AblationsLeaveTheirTermOut) {
  Terms w(kGroups, 5);
  Param zeros = param("zeros", test::full({4, 5}, 0));
  const Tensor x = test::random({7, 10}, 1), scores = test::random({7}, 2);
  const auto h = [&](const Var& score, Param* alpha, Param* b) {
    return test::values(kappa_swiglu(x, score, alpha, b, kGroups, kAuthors).value());
  };
  EXPECT_EQ(h(scores, nullptr, &w.b), h(scores, &zeros, &w.b));
  EXPECT_EQ(h({}, &w.alpha, &w.b), h(scores, &zeros, &w.b));
  EXPECT_EQ(h(scores, &w.alpha, nullptr), h(scores, &w.alpha, &zeros));
  const auto tolerance = test::op_tolerance(DType::kF64);
  test::expect_near(swiglu(x).value(), h({}, nullptr, nullptr), tolerance, "swiglu");
  const auto op = [&](Param* alpha, Param* b) {
    return [&, alpha, b](const Var& v) { return kappa_swiglu(v, scores, alpha, b, kGroups); };
  };
  test::expect_gradients(op(nullptr, &w.b), x, {&w.b});
  test::expect_gradients(op(&w.alpha, nullptr), x, {&w.alpha});
  test::expect_gradients(op(nullptr, nullptr), x, {});
}

TEST(KappaSwiglu, UOfOneIsSwiglu) {
  Terms w(kGroups, 5);
  const Tensor x = test::random({7, 10}, 1), scores = test::random({7}, 2);
  const Var h = kappa_swiglu(x, scores, &w.alpha, &w.b, kGroups, {1, 1, 1, 1});
  test::expect_near(h.value(), test::values(swiglu(x).value()), test::op_tolerance(DType::kF64),
                    "h");
}

TEST(KappaSwiglu, TypesAgree) {
  for (const double upper : {1.0, 1.5, 3.0, 8.0}) {
    const Tensor scores = test::random({7}, 2, DType::kF32);
    for (const int64_t width : {133, 264}) {
      Terms w(kGroups, width);
      const auto op = [&](const Var& v) {
        return kappa_swiglu(v, beside(v, scores), &w.alpha, &w.b, kGroups, {upper, 1, 1, 1});
      };
      test::expect_types_agree(op, test::random({7, 2 * width}, 1), {&w.alpha, &w.b});
    }
  }
}

// As of a rank's only expert: what is added to is left as it is, or is 0.
TEST(KappaSwiglu, AnExpertWithoutRowsHasNoGradient) {
  const Groups none{{0, 0}};
  for (const test::TestDevice& device : test::devices()) {
    Terms w(none, 8, DType::kF32);
    const auto op = [&](const Var& x) { return kappa_swiglu(x, Var(), nullptr, &w.b, none); };
    const test::OpRun run =
        test::run_op(op, test::random({0, 16}, 3, DType::kF32), {&w.b}, {}, device);
    EXPECT_EQ(test::values(run.dparams[0]), std::vector<double>(8, 0)) << device.name;
  }
}

// Gates and terms far outside the range of training: neither NaN nor infinity, and still right.
TEST(KappaSwiglu, ExtremesAreRight) {
  const std::vector<float> sizes{0, 1e-30F, 1, 20, 90, 1e4F, 1e9F};
  std::vector<float> gates, terms;
  for (const float z : sizes) {
    for (const float t : sizes) {
      for (const float sign : {1.0F, -1.0F}) {
        for (const float other : {1.0F, -1.0F}) {
          gates.push_back(sign * z);
          terms.push_back(other * t);
        }
      }
    }
  }
  const int64_t F = std::ssize(gates);
  const Tensor up = test::full({F}, 1, DType::kF32);
  const auto run = [&](DType type, const test::TestDevice& device) {
    Tensor x = test::full({1, 2 * F}, 1, DType::kF32);
    x.view(0, {F}).copy_from(Tensor::of<float>({F}, gates));
    Param b = param("b", test::cast(Tensor::of<float>({1, F}, terms), type));
    return test::run_op(
        [&](const Var& v) {
          return kappa_swiglu(v, {}, nullptr, &b, {{0, 1}});
        },
        test::cast(x, type), {&b}, test::full({1, F}, 1, type), device);
  };
  const test::OpRun want = run(DType::kF64, test::devices().front());
  const auto tolerance = test::op_tolerance(DType::kF32);
  for (const test::TestDevice& device : test::devices()) {
    const test::OpRun got = run(DType::kF32, device);
    test::expect_near(got.y, test::values(want.y), tolerance, device.name + " h");
    test::expect_near(got.dx, test::values(want.dx), tolerance, device.name + " dx");
    test::expect_near(got.dparams[0], test::values(want.dparams[0]), tolerance,
                      device.name + " db");
  }
}

TEST(KappaSwiglu, ANanStaysOne) {
  Param b = param("b", Tensor::of<float>({1, 2}, {std::nanf(""), 0}));
  const Tensor x = Tensor::of<float>({1, 4}, {1, std::nanf(""), 1, 1});
  const std::vector<Param*> params{&b};
  for (const test::TestDevice& device : test::devices()) {
    const test::ParamsOn there(device, params);
    const Var h = kappa_swiglu(device.place(x), {}, nullptr, &b, {{0, 1}});
    for (const double v : test::values(h.value())) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(KappaSwiglu, Accumulates) {
  Terms w(kGroups, 5);
  const Tensor x = test::random({7, 10}, 1), scores = test::random({7}, 2);
  const auto of_x = [&](const Var& v) {
    return kappa_swiglu(v, beside(v, scores), &w.alpha, &w.b, kGroups, kAuthors);
  };
  test::expect_accumulates(of_x, x, {&w.alpha, &w.b});
  const auto of_score = [&](const Var& v) {
    return kappa_swiglu(beside(v, x), v, &w.alpha, &w.b, kGroups, kAuthors);
  };
  test::expect_accumulates(of_score, scores, {&w.alpha, &w.b});
}

// One expert of several tiles against an expert for each row, with the same terms.
TEST(KappaSwiglu, TilesAddUp) {
  constexpr int64_t kRows = 201, kWidth = 5;
  const Groups one{{0, kRows}};
  Groups each;
  for (int64_t row = 1; row <= kRows; ++row) each.offsets.push_back(row);
  Terms w(one, kWidth), many(each, kWidth);
  for (int64_t row = 0; row < kRows; ++row) {
    many.alpha.value.view(row * kWidth, {kWidth}).copy_from(w.alpha.value.view(0, {kWidth}));
    many.b.value.view(row * kWidth, {kWidth}).copy_from(w.b.value.view(0, {kWidth}));
  }
  const Tensor x = test::random({kRows, 2 * kWidth}, 1), scores = test::random({kRows}, 2);
  const auto run = [&](Terms& terms, const Groups& groups) {
    return test::run_op(
        [&](const Var& v) {
          return kappa_swiglu(v, scores, &terms.alpha, &terms.b, groups, kAuthors);
        },
        x, {&terms.alpha, &terms.b});
  };
  const test::OpRun got = run(w, one), want = run(many, each);
  EXPECT_TRUE(test::same_bytes(got.dx, want.dx));
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<double> rows = test::values(want.dparams[i]);
    std::vector<double> sums(kWidth, 0);
    for (size_t j = 0; j < rows.size(); ++j) sums[j % kWidth] += rows[j];
    test::expect_near(got.dparams[i], sums, test::op_tolerance(DType::kF64), "sums");
  }
}

TEST(KappaSwiglu, ThreadsAgree) {
  Terms w(kTiles, 133, DType::kF32);
  const Tensor scores = test::random({301}, 2, DType::kF32);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const auto op = [&](const Var& v) {
      return kappa_swiglu(v, scores, &w.alpha, &w.b, kTiles, kAuthors);
    };
    test::expect_threads_agree(op, test::random({301, 266}, 1, type), {&w.alpha, &w.b});
  }
}

// Every device has the CPU's gradients of everything, over several tiles of rows and strips of
// columns, with each term and without.
TEST(KappaSwiglu, DevicesAgree) {
  const Tensor scores = test::random({301}, 2);
  for (const test::TestDevice& device : test::devices()) {
    for (const int64_t width : {133, 264}) {
      Terms w(kTiles, width);
      const Tensor x = test::random({301, 2 * width}, 1);
      for (const auto& [alpha, b] : std::vector<std::pair<Param*, Param*>>{
               {&w.alpha, &w.b}, {nullptr, &w.b}, {&w.alpha, nullptr}, {nullptr, nullptr}}) {
        std::vector<Param*> params;
        for (Param* p : {alpha, b}) {
          if (p != nullptr) params.push_back(p);
        }
        const auto expect_same = [&](const test::Op& op, const Tensor& at) {
          const test::OpRun got = test::run_op(op, at, params, {}, device);
          const test::OpRun want = test::run_op(op, at, params);
          const auto tolerance = test::op_tolerance(DType::kF64);
          test::expect_near(got.y, test::values(want.y), tolerance, device.name + " h");
          test::expect_near(got.dx, test::values(want.dx), tolerance, device.name + " dx");
          for (size_t i = 0; i < params.size(); ++i) {
            test::expect_near(got.dparams[i], test::values(want.dparams[i]), tolerance,
                              device.name + " " + params[i]->name);
          }
        };
        expect_same(
            [&](const Var& v) {
              return kappa_swiglu(v, beside(v, scores), alpha, b, kTiles, kAuthors);
            },
            x);
        if (alpha == nullptr) continue;
        expect_same(
            [&](const Var& v) { return kappa_swiglu(beside(v, x), v, alpha, b, kTiles, kAuthors); },
            scores);
      }
    }
  }
}

// Groups of which the host knows the number alone; two rows belong to none.
TEST(KappaSwiglu, OffsetsThatOnlyTheGpuKnows) {
  constexpr int64_t kWidth = 40;
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    Terms w(kGroups, kWidth);
    const Groups there{
        {}, device.place(Tensor::of<int64_t>({5}, kGroups.offsets)), kGroups.rows() + 2};
    const Tensor x = test::random({9, 2 * kWidth}, 1), scores = test::random({9}, 2);
    const Tensor dh = test::random({9, kWidth}, 3);
    const auto run = [&](int64_t rows, const Groups& groups, const test::TestDevice& on) {
      return test::run_op(
          [&](const Var& v) {
            return kappa_swiglu(v, beside(v, scores.view(0, {rows})), &w.alpha, &w.b, groups,
                                kAuthors);
          },
          x.view(0, {rows, 2 * kWidth}), {&w.alpha, &w.b}, dh.view(0, {rows, kWidth}), on);
    };
    const test::OpRun got = run(9, there, device), want = run(7, kGroups, {"cpu", nullptr});
    const auto tolerance = test::op_tolerance(DType::kF64);
    test::expect_near(got.y.view(0, {7, kWidth}), test::values(want.y), tolerance, "h");
    test::expect_near(got.dx.view(0, {7, 2 * kWidth}), test::values(want.dx), tolerance, "dx");
    for (size_t i = 0; i < 2; ++i) {
      test::expect_near(got.dparams[i], test::values(want.dparams[i]), tolerance, "terms");
    }
  }
}

TEST(KappaSwiglu, NoRowsAtAll) {
  Terms w({{0, 0, 0}}, 5);
  const auto op = [&](const Var& v) { return kappa_swiglu(v, {}, nullptr, &w.b, {{0, 0, 0}}); };
  for (const test::TestDevice& device : test::devices()) {
    const test::OpRun run = test::run_op(op, Tensor({0, 10}, DType::kF64), {&w.b}, {}, device);
    EXPECT_EQ(test::values(run.dparams[0]), std::vector<double>(10, 0.0));
  }
}

TEST(KappaSwiglu, RefusesWhatDoesNotFit) {
  Terms w(kGroups, 5);
  const Tensor x = test::random({7, 10}, 1), scores = test::random({7}, 2);
  EXPECT_THROW(kappa_swiglu(test::random({7, 9}, 1), scores, &w.alpha, &w.b, kGroups), Error);
  EXPECT_THROW(kappa_swiglu(x, test::random({6}, 1), &w.alpha, &w.b, kGroups), Error);
  EXPECT_THROW(kappa_swiglu(x, scores, &w.alpha, &w.b, {{0, 7}}), Error);
  EXPECT_THROW(kappa_swiglu(x, scores, &w.alpha, &w.b, kGroups, {0.5, 1, 1, 1}), Error);
  EXPECT_THROW(kappa_swiglu(x, scores, &w.alpha, &w.b, kGroups, {9, 1, 1, 1}), Error);
}

}  // namespace
}  // namespace anabranch
