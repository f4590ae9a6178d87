#include "core/tensor/pool.h"

#include <gtest/gtest.h>

#include "core/tensor/tensor.h"

namespace anabranch {
namespace {

TEST(Pool, HandsAFreedBlockOutAgain) {
  const auto pool = std::make_shared<Pool>();
  void* first = pool->allocate(1000, "a");
  pool->release(first);
  EXPECT_EQ(pool->allocate(1000, "b"), first);
  const int64_t reserved = pool->reserved();
  void* other = pool->allocate(1000, "c");
  EXPECT_NE(other, first);
  EXPECT_GT(pool->reserved(), reserved);
  pool->release(first);
  pool->release(other);
}

TEST(Pool, SaysWhoHoldsWhat) {
  const auto pool = std::make_shared<Pool>();
  const Tensor a({10}, DType::kF32, pool, "weights");
  {
    const Tensor b({20}, DType::kF64, pool, "activations");
    using Rows = std::vector<std::pair<std::string, int64_t>>;
    EXPECT_EQ(pool->live_by_tag(), (Rows{{"activations", 160}, {"weights", 40}}));
    EXPECT_EQ(pool->usage().live, 200);
  }
  EXPECT_EQ(pool->usage().live, 40);
  EXPECT_EQ(pool->usage().peak, 200);
}

TEST(Pool, ALargeBlockIsNotWastedOnASmallRequest) {
  const auto pool = std::make_shared<Pool>();
  void* large = pool->allocate(1 << 20, "large");
  pool->release(large);
  void* small = pool->allocate(64, "small");
  EXPECT_NE(small, large);
  pool->release(small);
}

TEST(Tensor, ViewsShareAndStayInside) {
  Tensor t = Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5});
  Tensor row = t.view(3, {3});
  row.data<float>()[0] = 7;
  EXPECT_EQ(t.data<float>()[3], 7);
  EXPECT_THROW((void)t.view(4, {3}), Error);
  EXPECT_THROW((void)t.data<double>(), Error);
  EXPECT_FALSE(t.unique());
}

}  // namespace
}  // namespace anabranch
