#include "core/ops/adamw.h"

#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr AdamwStep kStep{.lr = 0.1,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .eps = 1e-3,
                          .weight_decay = 0.5,
                          .step = 3,
                          .grad_scale = 0.5};

TEST(Adamw, EqualsTheEquation) {
  Tensor p = Tensor::of<double>({1}, {2}), m = Tensor::of<double>({1}, {0.3});
  Tensor v = Tensor::of<double>({1}, {0.04});
  adamw(p, m, v, Tensor::of<double>({1}, {-4}), nullptr, kStep);
  const double new_m = 0.9 * 0.3 + 0.1 * -2.0, new_v = 0.99 * 0.04 + 0.01 * 4.0;
  const double m_hat = new_m / (1 - 0.729), v_hat = new_v / (1 - 0.970299);
  EXPECT_NEAR(*m.data<double>(), new_m, 1e-15);
  EXPECT_NEAR(*v.data<double>(), new_v, 1e-15);
  EXPECT_NEAR(*p.data<double>(), 2 * 0.95 - 0.1 * m_hat / (std::sqrt(v_hat) + 1e-3), 1e-14);
}

TEST(Adamw, FloatIsNearDoubleAndTheValueIsTheRoundedMaster) {
  for (const int64_t n : {1, 7, 33, 40000}) {
    Tensor p = test::random({n}, 1), m = test::full({n}, 0), v = test::full({n}, 0);
    Tensor p32 = test::cast(p, DType::kF32), m32 = test::cast(m, DType::kF32);
    Tensor v32 = test::cast(v, DType::kF32), value({n}, DType::kBF16);
    AdamwStep step = kStep;
    for (step.step = 1; step.step <= 3; ++step.step) {
      const Tensor g = test::random({n}, static_cast<uint32_t>(step.step) + 10);
      adamw(p, m, v, g, nullptr, step);
      adamw(p32, m32, v32, test::cast(g, DType::kF32), &value, step);
    }
    test::expect_near(p32, test::values(p), test::op_tolerance(DType::kF32), "master");
    test::expect_near(m32, test::values(m), test::op_tolerance(DType::kF32), "m");
    test::expect_near(v32, test::values(v), test::op_tolerance(DType::kF32), "v");
    test::expect_near(value, test::values(test::cast(p32, DType::kBF16)), test::kExact, "value");
  }
}

TEST(Adamw, RefusesWhatDoesNotFit) {
  Tensor p = test::full({3}, 0), m = test::full({3}, 0), v = test::full({2}, 0);
  const Tensor g = test::full({3}, 0);
  EXPECT_THROW(adamw(p, m, v, g, nullptr, kStep), Error);
  Tensor v3 = test::full({3}, 0), wide = test::full({3}, 0, DType::kF32);
  EXPECT_THROW(adamw(p, m, v3, g, &wide, kStep), Error);
  AdamwStep zeroth = kStep;
  zeroth.step = 0;
  EXPECT_THROW(adamw(p, m, v3, g, nullptr, zeroth), Error);
}

}  // namespace
}  // namespace anabranch
