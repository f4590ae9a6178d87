#include "core/ops/vec_math.h"

#include <functional>
#include <limits>
#include <vector>

#include "core/base/build.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Through vectors, as the kernels use them.
AB_CLONES void exp_all(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = exp_fast(x[i]);
}

AB_CLONES void tanh_all(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = tanh_fast(x[i]);
}

AB_CLONES void erf_all(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = erf_fast(x[i]);
}

AB_CLONES void sigmoid_all(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = sigmoid_fast(x[i]);
}

using Kernel = void (*)(float*, const float*, int64_t);
using Reference = double (*)(double);

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// 400,001 points evenly over [low, high], and as many at magnitudes from 1e-30 up.
std::vector<float> points(float low, float high) {
  constexpr int kPoints = 400000;
  std::vector<float> xs;
  for (int i = 0; i <= kPoints; ++i) {
    const double part = static_cast<double>(i) / kPoints;
    xs.push_back(static_cast<float>(low + (high - low) * part));
    const auto small = static_cast<float>(std::pow(10.0, -30 + 30 * part));
    xs.push_back(i % 2 == 0 ? small : -small);
  }
  return xs;
}

void expect_close(Kernel kernel, Reference reference, float low, float high) {
  const std::vector<float> xs = points(low, high);
  Tensor y({std::ssize(xs)}, DType::kF32);
  kernel(y.data<float>(), xs.data(), std::ssize(xs));
  std::vector<double> want;
  want.reserve(xs.size());
  for (const float x : xs) want.push_back(reference(x));
  test::expect_near(y, want, test::kVecMath, "f(x)");
}

std::vector<float> at(Kernel kernel, const std::vector<float>& xs) {
  std::vector<float> ys(xs.size());
  kernel(ys.data(), xs.data(), std::ssize(xs));
  return ys;
}

TEST(VecMath, ExpIsWithinTolerance) {
  expect_close(
      exp_all, [](double x) { return std::exp(x); }, -87, 88.7F);
}

TEST(VecMath, TanhIsWithinTolerance) {
  expect_close(
      tanh_all, [](double x) { return std::tanh(x); }, -12, 12);
}

TEST(VecMath, ErfIsWithinTolerance) {
  expect_close(
      erf_all, [](double x) { return std::erf(x); }, -6, 6);
}

TEST(VecMath, SigmoidIsWithinTolerance) { expect_close(sigmoid_all, sigmoid, -85, 85); }

TEST(VecMath, ExpOverflowsAndUnderflowsLikeTheStandardOne) {
  EXPECT_EQ(at(exp_all, {0, -0.0F, kInf, -kInf, 88.73F, 1e30F, -104, -1e30F}),
            (std::vector<float>{1, 1, kInf, 0, kInf, kInf, 0, 0}));
  for (const float x : {-87.5F, -95.0F, -103.0F}) {  // subnormal results
    EXPECT_NEAR(at(exp_all, {x})[0], std::exp(x), std::numeric_limits<float>::denorm_min()) << x;
  }
}

TEST(VecMath, LimitsAndSigns) {
  const std::vector<float> xs{kInf, -kInf, 1e30F, -1e30F};
  EXPECT_EQ(at(tanh_all, xs), (std::vector<float>{1, -1, 1, -1}));
  EXPECT_EQ(at(erf_all, xs), (std::vector<float>{1, -1, 1, -1}));
  EXPECT_EQ(at(sigmoid_all, xs), (std::vector<float>{1, 0, 1, 0}));
  EXPECT_TRUE(std::signbit(at(tanh_all, {-0.0F})[0]));
  EXPECT_TRUE(std::signbit(at(erf_all, {-0.0F})[0]));
}

TEST(VecMath, NanStaysNan) {
  for (const Kernel kernel : {exp_all, tanh_all, erf_all, sigmoid_all}) {
    for (const float y : at(kernel, std::vector<float>(40, kNan))) EXPECT_TRUE(std::isnan(y));
  }
}

TEST(VecMath, DoubleIsTheStandardLibrarys) {
  EXPECT_EQ(exp_fast(0.3), std::exp(0.3));
  EXPECT_EQ(tanh_fast(0.3), std::tanh(0.3));
  EXPECT_EQ(erf_fast(0.3), std::erf(0.3));
  EXPECT_EQ(sigmoid_fast(0.3), sigmoid(0.3));
}

TEST(VecMath, LaneSumTakesEveryTermOnce) {
  for (const int64_t n : {0, 1, 63, 64, 65, 200}) {
    const int64_t want = n * (n + 1) / 2;
    EXPECT_EQ(lane_sum<float>(n, [](int64_t i) { return static_cast<float>(i + 1); }),
              static_cast<float>(want));
  }
}

}  // namespace
}  // namespace anabranch
