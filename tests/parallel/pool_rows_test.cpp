#include "parallel/pool_rows.h"

#include <gtest/gtest.h>

#include "parallel/collectives.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

// First choices of all ranks, then second ones.
TEST(PoolCounts, PlacesOfThreeRanks) {
  run_on_threads(3, [](Group& g) {
    const int64_t r = g.rank();
    const PoolCounts counts({1 + r, 2, 10, 20 + r}, 2, g);  // [k, E] = [2, 2]
    EXPECT_EQ(counts.demand(), (std::vector<int64_t>{1 + 2 + 3 + 30, 6 + 63}));
    EXPECT_EQ(counts.before(), (std::vector<int64_t>{r * (r + 1) / 2, 2 * r, 6 + 10 * r,
                                                     6 + 20 * r + r * (r - 1) / 2}));
    const Tensor rows = rows_of_all(test::full({1, 2}, static_cast<double>(r)), g);
    EXPECT_EQ(test::values(rows), (std::vector<double>{0, 0, 1, 1, 2, 2}));
  });
}

}  // namespace
}  // namespace anabranch
