#include "core/ops/muon.h"

#include <limits>
#include <numeric>

#include "core/tensor/element.h"
#include "tests/core/ops/matrices.h"
#include "tests/support/devices.h"

namespace anabranch {
namespace {

MuonStep some_step(DType compute) {
  return {.lr = 0.1,
          .momentum = 0.9,
          .beta2 = 0.8,
          .weight_decay = 0.5,
          .grad_scale = 0.5,
          .compute = compute};
}

// What polar_express makes of one singular value of `norm`, the only one.
double express(double norm) {
  const PolarForm form = PolarForm::polar_express();
  double s = norm / (form.scale * norm + form.eps);
  for (const auto& [a, b, c] : form.iterations) s = a * s + b * s * s * s + c * s * s * s * s * s;
  return s;
}

struct State {
  test::TestDevice device;
  Tensor w, m, s, value, rejected;

  explicit State(Shape shape, DType type = DType::kF64,
                 const test::TestDevice& there = {"cpu", nullptr})
      : device(there),
        w(device.place(test::random(shape, 1, type))),
        m(device.place(test::random(shape, 2, type))),
        s(device.place(test::full(moments(shape), 0.01, type))),
        value(device.place(Tensor(shape, DType::kBF16))),
        rejected(device.place(Tensor::of<double>({1}, {0}))) {}

  static Shape moments(const Shape& shape) {
    const int64_t axis = std::max(shape[-2], shape[-1]);
    return shape.rank() == 2 ? Shape{axis} : Shape{shape[0], axis};
  }

  // How many matrices have been left as they are, whoever says so.
  int64_t step(const Tensor& g, const MuonStep& how) {
    const int64_t said = muon(w, m, s, device.place(g), &value, how, &rejected);
    return said + std::llround(element(rejected));
  }
};

TEST(Muon, AOneByOneMatrixMovesByTheSign) {
  for (const double sign : {1.0, -1.0}) {
    Tensor w = Tensor::of<double>({1, 1}, {2}), m = Tensor::of<double>({1, 1}, {0.3 * sign});
    Tensor s = Tensor::of<double>({1}, {0.04});
    const Tensor g = Tensor::of<double>({1, 1}, {8 * sign});
    EXPECT_EQ(muon(w, m, s, g, nullptr, some_step(DType::kF64)), 0);
    const double new_m = 0.9 * 0.3 + 0.1 * 4, v = 0.1 * 4 + 0.9 * new_m, u = express(v);
    EXPECT_NEAR(*m.data<double>(), new_m * sign, 1e-14);
    EXPECT_NEAR(*s.data<double>(), 0.8 * 0.04 + 0.2 * u * u, 1e-13);
    const double decay = sign > 0 ? 0.1 * 0.5 * 2 : 0;  // only where u and w agree
    EXPECT_NEAR(*w.data<double>(), 2 - 0.1 * u * sign - decay, 1e-13);
  }
}

TEST(Muon, AColumnAndARowEqualTheEquation) {
  MuonStep step = some_step(DType::kF64);
  step.momentum = 0;
  step.grad_scale = 1;
  for (const bool column : {true, false}) {
    const Shape shape = column ? Shape{3, 1} : Shape{1, 3};
    const std::vector<double> v{3, -4, 12}, w0{1, 1, -1}, s0{0.5, 0.1, 0.02};
    Tensor w = Tensor::of<double>(shape, w0), m = test::full(shape, 7);
    Tensor s = Tensor::of<double>({3}, s0);
    muon(w, m, s, Tensor::of<double>(shape, v), nullptr, step);
    const double rate = column ? 0.1 * std::sqrt(3.0) : 0.1, length = express(13);
    std::vector<double> scaled, new_s, new_w;
    double norm = 0;
    for (size_t i = 0; i < 3; ++i) {
      const double u = length * v[i] / 13;
      new_s.push_back(0.8 * s0[i] + 0.2 * u * u);
      scaled.push_back(u / std::sqrt(new_s[i]));
      norm += scaled[i] * scaled[i];
    }
    for (size_t i = 0; i < 3; ++i) {
      const double u = scaled[i] * length / std::sqrt(norm);
      new_w.push_back(w0[i] - rate * u - (u * w0[i] >= 0 ? rate * 0.5 * w0[i] : 0));
    }
    test::expect_near(s, new_s, test::op_tolerance(DType::kF64), "s");
    test::expect_near(w, new_w, test::op_tolerance(DType::kF64), "w");
    test::expect_near(m, v, test::kExact, "m");
  }
}

TEST(Muon, ATransposedMatrixTakesTheTransposedStepButForTheRate) {
  for (const test::TestDevice& device : test::devices()) {
    MuonStep step = some_step(DType::kF64);
    State tall({40, 10}, DType::kF64, device), wide({10, 40}, DType::kF64, device);
    wide.w = device.place(test::transposed(tall.w.copy_in(nullptr)));
    wide.m = device.place(test::transposed(tall.m.copy_in(nullptr)));
    const Tensor g = test::random({40, 10}, 3);
    tall.step(g, step);
    step.lr *= 2;  // sqrt(40 / 10)
    wide.step(test::transposed(g), step);
    test::expect_near(test::transposed(wide.w.copy_in(nullptr)), test::values(tall.w),
                      test::op_tolerance(DType::kF64), device.name + " w");
    test::expect_near(wide.s, test::values(tall.s), test::op_tolerance(DType::kF64), "s");
  }
}

// With and without Nesterov's momentum; of float64 too, where the CPU's is the other's reference.
TEST(Muon, AGpuTakesTheCpusStep) {
  for (const test::TestDevice& device : test::devices()) {
    for (const bool nesterov : {true, false}) {
      for (const auto& [rows, cols] : {std::pair(12, 5), {5, 12}, {8, 8}, {16, 8}}) {
        MuonStep step = some_step(DType::kF64);
        step.nesterov = nesterov;
        State want({3, rows, cols}), got({3, rows, cols}, DType::kF64, device);
        for (uint32_t seed = 10; seed < 12; ++seed) {
          const Tensor g = test::random({3, rows, cols}, seed);
          EXPECT_EQ(want.step(g, step), 0);
          EXPECT_EQ(got.step(g, step), 0);
        }
        const test::Tolerance near = test::op_tolerance(DType::kF64);
        test::expect_near(got.w, test::values(want.w), near, device.name + " w");
        test::expect_near(got.m, test::values(want.m), near, device.name + " m");
        test::expect_near(got.s, test::values(want.s), near, device.name + " s");
        test::expect_near(got.value, test::values(want.value), test::op_tolerance(DType::kBF16),
                          device.name + " value");
      }
    }
  }
}

TEST(Muon, WithoutNesterovTheDirectionIsTheMomentum) {
  MuonStep step = some_step(DType::kF64);
  step.nesterov = false;
  Tensor w = test::full({1, 2}, 0), m = Tensor::of<double>({1, 2}, {1, 0});
  Tensor s = test::full({2}, 1);
  muon(w, m, s, Tensor::of<double>({1, 2}, {0, 18}), nullptr, step);  // m' = (0.9, 0.9)
  EXPECT_NEAR(w.data<double>()[0], w.data<double>()[1], 1e-14);
  EXPECT_NEAR(w.data<double>()[0], -0.1 * express(0.9 * std::sqrt(2.0)) / std::sqrt(2.0), 1e-13);
}

void expect_near_float64(int64_t rows, int64_t cols, const test::TestDevice& device) {
  State want({2, rows, cols});
  const Tensor before = want.w.clone();
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    State got({2, rows, cols}, DType::kF32, device);
    State exact({2, rows, cols});
    for (uint32_t seed = 10; seed < 13; ++seed) {
      const Tensor g = test::random({2, rows, cols}, seed);
      got.step(test::cast(g, DType::kF32), some_step(compute));
      exact.step(g, some_step(DType::kF64));
    }
    const double near =
        compute == DType::kF32 ? test::kPolarF32.relative : test::kPolarBf16.relative;
    EXPECT_LE(test::distance(got.w, exact.w), near) << device.name;
    EXPECT_LE(test::distance(got.s, exact.s), near) << device.name;
    test::expect_near(got.m, test::values(exact.m), test::op_tolerance(DType::kF32), "m");
    test::expect_near(got.value, test::values(test::cast(got.w, DType::kBF16)), test::kExact,
                      "value");
    EXPECT_GT(test::distance(got.w, before), 0.1);
  }
}

TEST(Muon, LowerPrecisionIsNearFloat64AndTheValueIsTheRoundedMaster) {
  for (const test::TestDevice& device : test::devices()) {
    for (const auto& [rows, cols] : {std::pair(48, 96), {96, 48}, {33, 33}}) {
      expect_near_float64(rows, cols, device);
    }
  }
}

TEST(Muon, AMatrixGivesTheSameAloneAsAmongOthers) {
  for (const auto& [rows, cols] : {std::pair(12, 40), {520, 530}}) {
    const MuonStep step = some_step(DType::kBF16);
    State all({3, rows, cols}, DType::kF32);
    const int64_t n = rows * cols, axis = std::max(rows, cols);
    const Tensor g = test::random({3, rows, cols}, 3, DType::kF32);
    Tensor w = all.w.view(n, {rows, cols}).clone(), m = all.m.view(n, {rows, cols}).clone();
    Tensor s = all.s.view(axis, {axis}).clone();
    muon(w, m, s, g.view(n, {rows, cols}), nullptr, step);
    all.step(g, step);
    EXPECT_EQ(test::values(w), test::values(all.w.view(n, {rows, cols})));
    EXPECT_EQ(test::values(s), test::values(all.s.view(axis, {axis})));
  }
}

TEST(Muon, ASmallDecayDoesNotVanish) {
  Tensor w = test::full({4, 4}, 1, DType::kF32), m = test::full({4, 4}, 0, DType::kF32);
  Tensor s = test::full({4}, 0, DType::kF32);
  MuonStep step{.lr = 0.01, .weight_decay = 0.05, .compute = DType::kBF16};
  for (int i = 0; i < 100; ++i) {
    muon(w, m, s, test::full({4, 4}, 0, DType::kF32), nullptr, step);
  }
  test::expect_near(w, std::vector<double>(16, std::pow(1 - 5e-4, 100)),
                    test::op_tolerance(DType::kF32), "w");
}

TEST(Muon, AMatrixWhoseUpdateIsNotFiniteStaysAsItIs) {
  for (const test::TestDevice& device : test::devices()) {
    State got({3, 4, 6}, DType::kF32, device);
    const State before({3, 4, 6}, DType::kF32);
    Tensor g = test::random({3, 4, 6}, 3, DType::kF32);
    g.data<float>()[30] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(got.step(g, some_step(DType::kBF16)), 1) << device.name;
    for (const int64_t i : {0, 1, 2}) {
      const auto same = [&](const Tensor& a, const Tensor& b, const Shape& shape) {
        const int64_t at = i * shape.count();
        return test::values(a.view(at, shape)) == test::values(b.view(at, shape));
      };
      EXPECT_EQ(same(got.w, before.w, {4, 6}), i == 1) << device.name;
      EXPECT_EQ(same(got.m, before.m, {4, 6}), i == 1) << device.name;
      EXPECT_EQ(same(got.s, before.s, {6}), i == 1) << device.name;
    }
  }
}

TEST(Muon, RefusesWhatDoesNotFit) {
  const MuonStep step = some_step(DType::kF64);
  State fit({2, 3, 4});
  const Tensor g = test::random({2, 3, 4}, 3);
  Tensor short_s = test::full({2, 3}, 0), flat = test::full({24}, 0);
  Tensor wide = test::full({2, 3, 4}, 0, DType::kF32);
  EXPECT_THROW(muon(fit.w, fit.m, short_s, g, nullptr, step), Error);
  EXPECT_THROW(muon(fit.w, flat, fit.s, g, nullptr, step), Error);
  EXPECT_THROW(muon(flat, flat, fit.s, flat, nullptr, step), Error);
  EXPECT_THROW(muon(fit.w, fit.m, fit.s, g.reshape({2, 4, 3}), nullptr, step), Error);
  EXPECT_THROW(muon(fit.w, fit.m, fit.s, g, &wide, step), Error);
  EXPECT_THROW(muon(fit.w, fit.m, fit.s, g, nullptr, some_step(DType::kBF16)), Error);
}

}  // namespace
}  // namespace anabranch
