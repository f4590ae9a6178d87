#include "core/ops/squared_norm.h"

#include <limits>

#include "core/base/parallel_for.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

TEST(SquaredNorm, EqualsTheSum) {
  EXPECT_EQ(squared_norm(Tensor::of<float>({3}, {1, -2, 3})), 14);
  for (const DType type : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const int64_t n : {0, 1, 7, 33, 100000}) {
      const Tensor x = test::random({n}, 1, type);
      double sum = 0;
      for (const double v : test::values(x)) sum += v * v;
      EXPECT_NEAR(squared_norm(x), sum, 1e-12 * sum) << name_of(type) << n;
    }
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
  for (const int64_t n : {3, 100000}) {
    Tensor x = test::full({n}, 1, DType::kF32);
    x.data<float>()[n - 1] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(squared_norm(x)));
    x.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(squared_norm(x)));
  }
  EXPECT_TRUE(std::isfinite(squared_norm(test::full({1}, 3e38, DType::kF32))));
}

}  // namespace
}  // namespace anabranch
