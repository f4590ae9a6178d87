#include "core/ops/aurora.h"

#include <algorithm>
#include <limits>

#include "core/tensor/element.h"
#include "tests/core/ops/matrices.h"
#include "tests/support/devices.h"

namespace anabranch {
namespace {

using ShapeScale = AuroraStep::ShapeScale;
using test::transposed;

Tensor known() { return Tensor::of<double>({4, 2}, {1, 2, 3, -1, 0.5, 0.25, -2, 1}); }

const std::vector<double> kAfterTwo{0.22505,  0.718878, 0.593577,  -0.316098,
                                    0.560539, 0.449757, -0.531804, 0.425459};

// u of a direction, without its shape's factor.
Tensor direction(const Tensor& v, int iterations, DType compute = DType::kF64,
                 const test::TestDevice& device = {"cpu", nullptr}) {
  const auto rows = static_cast<double>(v.dim(-2)), cols = static_cast<double>(v.dim(-1));
  Tensor w = device.place(test::full(v.shape(), 0, v.dtype())),
         m = device.place(test::full(v.shape(), 0, v.dtype()));
  const AuroraStep step{.lr = -1 / std::sqrt(std::max(1.0, rows / cols)),
                        .momentum = 0,
                        .iterations = iterations,
                        .compute = compute};
  EXPECT_EQ(aurora(w, m, device.place(v), nullptr, step), 0);
  return w.device().is_cpu() ? w : w.copy_in(nullptr);
}

TEST(Aurora, KnownDirections) {
  const Tensor square = Tensor::of<double>({2, 2}, {2, 1, 0, 1});
  for (const test::TestDevice& device : test::devices()) {
    const auto of = [&](const Tensor& v, int iterations) {
      return direction(v, iterations, DType::kF64, device);
    };
    test::expect_near(
        of(known(), 1),
        {0.255236, 0.776805, 0.583962, -0.295905, 0.536246, 0.375515, -0.553429, 0.409881},
        test::kSixDigits, device.name + " once");
    test::expect_near(of(known(), 2), kAfterTwo, test::kSixDigits, device.name + " twice");
    test::expect_near(transposed(of(transposed(known()), 2)), kAfterTwo, test::kSixDigits, "wide");
    test::expect_near(of(square, 2), {0.948683, 0.316228, -0.316228, 0.948683}, test::kSixDigits,
                      device.name + " square");
  }
}

TEST(Aurora, TheRowsOfALongMatrixBecomeEven) {
  Tensor v = test::random({96, 24}, 1);
  for (int64_t i = 0; i < v.count(); ++i) {
    const int64_t row = i / 24;
    v.data<double>()[i] *= std::exp(3 * std::sin(static_cast<double>(row)));
  }
  std::vector<double> spreads;
  for (const int iterations : {1, 2, 4}) {
    const std::vector<double> u = test::values(direction(v, iterations));
    double low = 1e9, high = 0;
    for (size_t r = 0; r < 96; ++r) {
      double sum = 0;
      for (size_t c = 0; c < 24; ++c) sum += u[r * 24 + c] * u[r * 24 + c];
      low = std::min(low, sum * 4);  // 96 / 24
      high = std::max(high, sum * 4);
    }
    spreads.push_back(high - low);
  }
  EXPECT_LT(spreads[1], 0.4 * spreads[0]);
  EXPECT_LT(spreads[2], 0.4 * spreads[1]);
  EXPECT_LT(spreads[2], 0.1);
}

TEST(Aurora, MomentumDecayAndTheShapesFactor) {
  for (const bool nesterov : {true, false}) {
    for (const ShapeScale scale : {ShapeScale::kAspect, ShapeScale::kRms}) {
      // m such that the direction is the known one: v = 0.75 g + 0.25 m, or v = m' = (m + g) / 2.
      const Tensor v = known(), g = test::random({4, 2}, 5);
      Tensor w = test::random({4, 2}, 6), m({4, 2}, DType::kF64), doubled = g.clone();
      std::vector<double> new_m, new_w;
      const double factor = scale == ShapeScale::kAspect ? std::sqrt(2.0) : 0.4;
      for (int64_t i = 0; i < 8; ++i) {
        const double d = v.data<double>()[i], grad = g.data<double>()[i];
        m.data<double>()[i] = nesterov ? 4 * d - 3 * grad : 2 * d - grad;
        doubled.data<double>()[i] *= 2;
        new_m.push_back((m.data<double>()[i] + grad) / 2);
        new_w.push_back(w.data<double>()[i] * (1 - 0.1 * 0.3) -
                        0.1 * factor * kAfterTwo[static_cast<size_t>(i)]);
      }
      const AuroraStep step{.lr = 0.1,
                            .momentum = 0.5,
                            .weight_decay = 0.3,
                            .nesterov = nesterov,
                            .shape_scale = scale,
                            .grad_scale = 0.5,
                            .compute = DType::kF64};
      EXPECT_EQ(aurora(w, m, doubled, nullptr, step), 0);
      test::expect_near(m, new_m, test::op_tolerance(DType::kF64), "m");
      test::expect_near(w, new_w, test::kSixDigits, "w");
    }
  }
}

TEST(Aurora, TheRmsFactorIsAtMostOne) {
  const AuroraStep step{
      .lr = 1, .momentum = 0, .shape_scale = ShapeScale::kRms, .compute = DType::kF64};
  for (const int64_t cols : {16, 25, 36}) {
    const Tensor g = test::random({2, cols}, 1);
    Tensor w = test::full({2, cols}, 0), m = test::full({2, cols}, 0);
    aurora(w, m, g, nullptr, step);
    const double factor = cols == 16 ? 0.8 : 1;
    std::vector<double> want = test::values(direction(g, 2));
    for (double& u : want) u *= -factor;
    test::expect_near(w, want, test::op_tolerance(DType::kF64), "w");
  }
}

TEST(Aurora, LowerPrecisionIsNearFloat64AndTheValueIsTheRoundedMaster) {
  for (const test::TestDevice& device : test::devices()) {
    for (const auto& [rows, cols] : {std::pair(48, 96), {96, 48}, {33, 33}}) {
      const Tensor v = test::random({2, rows, cols}, 1);
      const Tensor want = direction(v, 2), v32 = test::cast(v, DType::kF32);
      EXPECT_LE(test::distance(direction(v32, 2, DType::kF32, device), want),
                10 * test::kPolarF32.relative);
      EXPECT_LE(test::distance(direction(v32, 2, DType::kBF16, device), want),
                test::kPolarBf16.relative);
    }
    const Shape shape{2, 5, 7};
    Tensor w = device.place(test::random(shape, 1, DType::kF32)),
           m = device.place(test::random(shape, 2, DType::kF32)),
           value = device.place(Tensor(shape, DType::kBF16));
    aurora(w, m, device.place(test::random(shape, 3, DType::kF32)), &value, {.lr = 0.1});
    test::expect_near(value, test::values(test::cast(w, DType::kBF16)), test::kExact, "value");
  }
}

TEST(Aurora, AGpuTakesTheCpusStep) {
  for (const test::TestDevice& device : test::devices()) {
    for (const auto& [rows, cols] : {std::pair(12, 5), {5, 12}, {8, 16}, {6, 6}}) {
      const Shape shape{3, rows, cols};
      const AuroraStep step{.lr = 0.1,
                            .weight_decay = 0.3,
                            .iterations = 3,
                            .shape_scale = ShapeScale::kRms,
                            .grad_scale = 0.5,
                            .compute = DType::kF64};
      const Tensor g = test::random(shape, 3);
      Tensor w = test::random(shape, 1), m = test::random(shape, 2);
      Tensor there = device.place(w.clone()), m_there = device.place(m.clone());
      aurora(w, m, g, nullptr, step);
      aurora(there, m_there, device.place(g), nullptr, step);
      test::expect_near(there, test::values(w), test::op_tolerance(DType::kF64), device.name);
      test::expect_near(m_there, test::values(m), test::op_tolerance(DType::kF64), device.name);
    }
  }
}

TEST(Aurora, AMatrixGivesTheSameAloneAsAmongOthers) {
  const AuroraStep step{.lr = 0.1, .compute = DType::kBF16, .form = PolarForm::simple_quintic(3)};
  for (const auto& [rows, cols] : {std::pair(40, 12), {530, 520}}) {
    const int64_t n = rows * cols;
    const Shape shape{3, rows, cols}, one{rows, cols};
    Tensor w = test::random(shape, 1, DType::kF32), m = test::random(shape, 2, DType::kF32);
    const Tensor g = test::random(shape, 3, DType::kF32);
    Tensor w1 = w.view(n, one).clone(), m1 = m.view(n, one).clone();
    aurora(w1, m1, g.view(n, one), nullptr, step);
    aurora(w, m, g, nullptr, step);
    EXPECT_EQ(test::values(w1), test::values(w.view(n, one)));
    EXPECT_EQ(test::values(m1), test::values(m.view(n, one)));
  }
}

TEST(Aurora, ASmallDecayDoesNotVanish) {
  Tensor w = test::full({4, 2}, 1, DType::kF32), m = test::full({4, 2}, 0, DType::kF32);
  const AuroraStep step{.lr = 0.01, .weight_decay = 0.05, .compute = DType::kBF16};
  for (int i = 0; i < 100; ++i) {
    aurora(w, m, test::full({4, 2}, 0, DType::kF32), nullptr, step);
  }
  test::expect_near(w, std::vector<double>(8, std::pow(1 - 5e-4, 100)),
                    test::op_tolerance(DType::kF32), "w");
}

void expect_left(float bad, const test::TestDevice& device) {
  const Shape shape{3, 6, 4}, one{6, 4};
  const Tensor w0 = test::random(shape, 1, DType::kF32), m0 = test::random(shape, 2, DType::kF32);
  Tensor w = device.place(w0.clone()), m = device.place(m0.clone()),
         g = test::random(shape, 3, DType::kF32),
         rejected = device.place(Tensor::of<double>({1}, {0}));
  g.data<float>()[30] = bad;
  const AuroraStep step{.lr = 0.1, .weight_decay = 0.1};
  const int64_t said = aurora(w, m, device.place(g), nullptr, step, &rejected);
  EXPECT_EQ(static_cast<double>(said) + element(rejected), 1) << device.name;
  for (const int64_t i : {0, 1, 2}) {
    const auto same = [&](const Tensor& a, const Tensor& b) {
      return test::values(a.view(i * 24, one)) == test::values(b.view(i * 24, one));
    };
    EXPECT_EQ(same(w, w0), i == 1) << device.name;
    EXPECT_EQ(same(m, m0), i == 1) << device.name;
  }
}

TEST(Aurora, AMatrixWhoseUpdateIsNotFiniteStaysAsItIs) {
  for (const test::TestDevice& device : test::devices()) {
    expect_left(std::numeric_limits<float>::infinity(), device);
    expect_left(std::numeric_limits<float>::quiet_NaN(), device);
  }
}

TEST(Aurora, RefusesWhatDoesNotFit) {
  const AuroraStep step{.lr = 0.1, .compute = DType::kF64};
  Tensor w = test::random({3, 4}, 1), m = test::random({3, 4}, 2), other = test::random({4, 3}, 2);
  const Tensor g = test::random({3, 4}, 3);
  EXPECT_THROW(aurora(w, other, g, nullptr, step), Error);
  EXPECT_THROW(aurora(w, m, other, nullptr, step), Error);
  EXPECT_THROW(aurora(w, m, g, &other, step), Error);
  Tensor flat = test::random({12}, 1);
  EXPECT_THROW(aurora(flat, flat, flat, nullptr, step), Error);
  EXPECT_THROW(aurora(w, m, g, nullptr, {.lr = 0.1, .compute = DType::kF32}), Error);
  EXPECT_THROW(aurora(w, m, g, nullptr, {.lr = 0.1, .iterations = 0, .compute = DType::kF64}),
               Error);
}

}  // namespace
}  // namespace anabranch
