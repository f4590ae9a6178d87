#include "parallel/pool_rows.h"

#include <gtest/gtest.h>

#include "parallel/collectives.h"
#include "tests/parallel/comm/gpu_ranks.h"
#include "tests/support/plans.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

using Counts = std::vector<int64_t>;

// First choices of all ranks, then second ones.
TEST(PoolCounts, PlacesOfThreeRanks) {
  test::run_on_all_devices(3, [](Group& g, const test::TestDevice& on) {
    const int64_t r = g.rank();
    const Tensor mine = Tensor::of<int64_t>({2, 2}, {1 + r, 2, 10, 20 + r});
    const PoolCounts counts(on.place(mine), g);
    EXPECT_EQ(test::elements<int64_t>(counts.demand()), (Counts{1 + 2 + 3 + 30, 6 + 63}));
    EXPECT_EQ(test::elements<int64_t>(counts.before()),
              (Counts{r * (r + 1) / 2, 2 * r, 6 + 10 * r, 6 + 20 * r + r * (r - 1) / 2}));
    const Tensor rows = rows_of_all(on.place(test::full({1, 2}, static_cast<double>(r))), g);
    EXPECT_EQ(test::values(rows), (std::vector<double>{0, 0, 1, 1, 2, 2}));
  });
}

}  // namespace
}  // namespace anabranch
