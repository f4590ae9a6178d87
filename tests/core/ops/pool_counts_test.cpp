#include "core/ops/pool_counts.h"

#include "tests/support/op_checks.h"
#include "tests/support/plans.h"

namespace anabranch {
namespace {

using Counts = std::vector<int64_t>;

// Two parts, two choices, three experts.
const Counts kAll{1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60};

TEST(PoolCounts, FirstChoicesComeFirst) {
  for (const test::TestDevice& device : test::devices()) {
    const Tensor all = device.place(Tensor::of<int64_t>({2, 2, 3}, kAll));
    EXPECT_EQ(test::elements<int64_t>(pool_counts_before(all, 0)), (Counts{0, 0, 0, 5, 7, 9}));
    EXPECT_EQ(test::elements<int64_t>(pool_counts_before(all, 1)), (Counts{1, 2, 3, 15, 27, 39}));
    const Tensor total = pool_counts_total(all);
    EXPECT_EQ(total.shape(), (Shape{1, 3}));
    EXPECT_EQ(test::elements<int64_t>(total), (Counts{55, 77, 99}));
  }
}

// More experts than a block has threads, and counts beyond 32 bits.
TEST(PoolCounts, DevicesAgree) {
  constexpr int64_t kParts = 5, kChoices = 3, kExperts = 301;
  Tensor all({kParts, kChoices, kExperts}, DType::kI64);
  for (int64_t i = 0; i < all.count(); ++i) all.data<int64_t>()[i] = i * i % 97 << 33;
  for (const test::TestDevice& device : test::devices()) {
    const Tensor there = device.place(all);
    EXPECT_TRUE(test::same_bytes(pool_counts_total(there), pool_counts_total(all)));
    for (int64_t part = 0; part < kParts; ++part) {
      const Tensor got = pool_counts_before(there, part);
      EXPECT_TRUE(test::same_bytes(got, pool_counts_before(all, part))) << "part " << part;
    }
  }
}

TEST(PoolCounts, RefusesWhatDoesNotFit) {
  const Tensor all = Tensor::of<int64_t>({2, 2, 3}, kAll);
  EXPECT_THROW((void)pool_counts_before(all, 2), Error);
  EXPECT_THROW((void)pool_counts_before(all, -1), Error);
  EXPECT_THROW((void)pool_counts_before(all.reshape({4, 3}), 0), Error);
  EXPECT_THROW((void)pool_counts_total(Tensor({1, 1, 1}, DType::kI32)), Error);
}

}  // namespace
}  // namespace anabranch
