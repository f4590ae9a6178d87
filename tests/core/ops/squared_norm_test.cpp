#include "core/ops/squared_norm.h"

#include <limits>

#include "core/base/parallel_for.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

TEST(SquaredNorm, EqualsTheSum) {
  for (const test::TestDevice& device : test::devices()) {
    EXPECT_EQ(squared_norm(device.place(Tensor::of<float>({3}, {1, -2, 3}))), 14);
    for (const DType type : {DType::kF32, DType::kF64, DType::kBF16}) {
      for (const int64_t n : {0, 1, 7, 33, 100000}) {
        const Tensor x = test::random({n}, 1, type), placed = device.place(x);
        double sum = 0;
        for (const double v : test::values(x)) sum += v * v;
        EXPECT_NEAR(squared_norm(placed), sum, 1e-12 * sum) << device.name << name_of(type) << n;
        if (n < 2) continue;
        sum -= test::values(x)[0] * test::values(x)[0];  // a view that is not aligned
        EXPECT_NEAR(squared_norm(placed.view(1, {n - 1})), sum, 1e-12 * sum) << device.name << n;
      }
    }
  }
}

TEST(SquaredNorm, MayBeReadLater) {
  for (const test::TestDevice& device : test::devices()) {
    Tensor sums = device.place(test::full({2}, 7));
    Tensor first = sums.view(0, {1}), second = sums.view(1, {1});
    squared_norm(first, device.place(Tensor::of<float>({2}, {1, 2})));
    squared_norm(second, device.place(Tensor::of<double>({2}, {3, 4})));
    EXPECT_EQ(test::values(sums), (std::vector<double>{5, 25}));
    EXPECT_THROW(squared_norm(sums, first), Error);
  }
}

TEST(SquaredNorm, DoesNotDependOnTheNumberOfThreads) {
  const Tensor x = test::random({200001}, 1, DType::kF32);
  const int threads = thread_count();
  std::vector<double> sums;
  for (const int count : {1, 2, 7}) {
    set_thread_count(count);
    sums.push_back(squared_norm(x));
  }
  set_thread_count(threads);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(SquaredNorm, NonFiniteValuesComeThrough) {
  for (const test::TestDevice& device : test::devices()) {
    for (const int64_t n : {3, 100000}) {
      Tensor x = test::full({n}, 1, DType::kF32);
      x.data<float>()[n - 1] = std::numeric_limits<float>::infinity();
      EXPECT_TRUE(std::isinf(squared_norm(device.place(x))));
      x.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(squared_norm(device.place(x))));
    }
    const Tensor large = test::full({1}, 3e38, DType::kF32);
    EXPECT_TRUE(std::isfinite(squared_norm(device.place(large))));
  }
}

}  // namespace
}  // namespace anabranch
