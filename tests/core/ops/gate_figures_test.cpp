#include "core/ops/gate_figures.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/ops/softmax.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

// The sums alone are those among all.
std::vector<double> figures_of(const Tensor& gates, const test::TestDevice& device) {
  const Tensor there = device.place(gates);
  const int64_t N = gates.dim(1);
  Tensor to = there.like({2 * N + 1}, DType::kF64, "test"), sums = there.like({N}, DType::kF64, "");
  gate_figures(to, there);
  gate_figures(sums, there);
  std::vector<double> all = test::values(to);
  EXPECT_EQ(test::values(sums), std::vector<double>(all.begin(), all.begin() + N)) << device.name;
  return all;
}

TEST(GateFigures, AddUpByHand) {
  const Tensor gates = Tensor::of<double>({3, 3}, {0.5, 0.5, 0, 0.25, 0.25, 0.5, 0, 1, 0});
  const double ln2 = std::log(2.0);
  for (const test::TestDevice& device : test::devices()) {
    const std::vector<double> got = figures_of(gates, device);
    // The first of equal ones is the largest.
    const std::vector<double> want = {0.75, 1.75, 0.5, 1, 1, 1, ln2 + (0.25 * 2 * 2 + 0.5) * ln2};
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-15) << device.name;
  }
}

TEST(GateFigures, DevicesAgree) {
  for (const int64_t rows : {0, 1, 255, 700}) {
    for (const int64_t N : {1, 4, 7, 300}) {
      for (const DType type : {DType::kF32, DType::kF64}) {
        const Tensor gates = softmax(test::random({rows, N}, 3, type)).value();
        const std::vector<double> want = figures_of(gates, test::devices().front());
        for (const test::TestDevice& device : test::devices()) {
          const std::vector<double> got = figures_of(gates, device);
          for (size_t i = 0; i < want.size(); ++i) {
            EXPECT_NEAR(got[i], want[i], 1e-12 * (1 + std::abs(want[i]))) << device.name << i;
          }
        }
      }
    }
  }
}

TEST(GateFigures, RefuseOtherShapes) {
  Tensor to({4}, DType::kF64);
  EXPECT_THROW(gate_figures(to, test::random({2, 2}, 1)), Error);
}

}  // namespace
}  // namespace anabranch
