#include "runtime/control.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace anabranch {
namespace {

TEST(Spread, LeavesOutWhatRanksDoNotKnow) {
  run_on_threads(4, [](Group& group) {
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    const auto rank = static_cast<double>(group.rank());
    const auto all = spread(group, {rank, group.rank() == 2 ? kUnknown : rank, kUnknown});
    EXPECT_EQ(all[0].min, 0);
    EXPECT_EQ(all[0].median, 2);
    EXPECT_EQ(all[0].max, 3);
    EXPECT_EQ(all[0].sum, 6);
    EXPECT_EQ(all[1].median, 1);
    EXPECT_EQ(all[1].max, 3);
    EXPECT_EQ(all[1].sum, 4);
    EXPECT_TRUE(std::isnan(all[2].min) && std::isnan(all[2].median) && std::isnan(all[2].max));
    EXPECT_EQ(all[2].sum, 0);
  });
}

}  // namespace
}  // namespace anabranch
