#include "core/ops/adamw.h"

#include <string>

#include "tests/support/devices.h"
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

// Steps on a device, in views that begin `offset` elements into their memory.
void expect_near_double(const test::TestDevice& device, int64_t n, int64_t offset) {
  const auto place = [&](const Tensor& t, DType type) {
    Tensor whole = test::full({offset + n}, 0, type);
    whole.view(offset, {n}).copy_from(test::cast(t, type));
    return device.place(whole).view(offset, {n});
  };
  Tensor p = test::random({n}, 1), m = test::full({n}, 0), v = test::full({n}, 0);
  Tensor p32 = place(p, DType::kF32), m32 = place(m, DType::kF32), v32 = place(v, DType::kF32);
  Tensor value = place(p, DType::kBF16), p64 = place(p, DType::kF64);
  Tensor m64 = place(m, DType::kF64), v64 = place(v, DType::kF64);
  AdamwStep step = kStep;
  for (step.step = 1; step.step <= 3; ++step.step) {
    const Tensor g = test::random({n}, static_cast<uint32_t>(step.step) + 10);
    adamw(p, m, v, g, nullptr, step);
    adamw(p32, m32, v32, place(g, DType::kF32), &value, step);
    adamw(p64, m64, v64, place(g, DType::kF64), nullptr, step);
  }
  const auto expect = [&](const Tensor& got, const Tensor& want, const std::string& name) {
    test::expect_near(got, test::values(want), test::op_tolerance(got.dtype()),
                      device.name + " " + name);
  };
  expect(p32, p, "master");
  expect(m32, m, "m");
  expect(v32, v, "v");
  expect(p64, p, "master in float64");
  expect(m64, m, "m in float64");
  expect(v64, v, "v in float64");
  test::expect_near(value, test::values(test::cast(p32, DType::kBF16)), test::kExact, "value");
}

TEST(Adamw, FloatIsNearDoubleAndTheValueIsTheRoundedMaster) {
  for (const test::TestDevice& device : test::devices()) {
    for (const int64_t n : {0, 1, 7, 33, 40000}) expect_near_double(device, n, 0);
    for (const int64_t offset : {1, 4}) expect_near_double(device, 41, offset);
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
