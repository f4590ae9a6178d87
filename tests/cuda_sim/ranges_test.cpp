// Ranges as a profiler sees them.
#include <algorithm>

#include <gmock/gmock.h>

#include "core/base/range.h"
#include "core/ops/gelu.h"
#include "tests/cuda_sim/sim.h"
#include "tests/parallel/comm/gpu_ranks.h"
#include "tests/support/op_checks.h"
#include "tests/support/ranks.h"

namespace anabranch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SimRanges, NestAndAreNumbered) {
  cuda_sim::watch_ranges(true);
  {
    const Range step("step", 12);
    const Range layer("layer", 0);
    { const Range plain("all_reduce"); }
  }
  EXPECT_THAT(cuda_sim::watch_ranges(false),
              ElementsAre("step 12", "layer 0", "all_reduce", "end", "end", "end"));
  { const Range unseen("step", 13); }
  EXPECT_THAT(cuda_sim::watch_ranges(false), IsEmpty());
}

TEST(SimRanges, BackwardHasOneForEachOp) {
  Tape tape;
  const Var x = tape.input(test::random({2, 3}, 1));
  const Var y = gelu(x);
  cuda_sim::watch_ranges(true);
  tape.backward(y, test::random({2, 3}, 2));
  EXPECT_THAT(cuda_sim::watch_ranges(false), ElementsAre("gelu", "end"));
}

// On the thread of each rank that starts it.
TEST(SimRanges, ACollectiveOfGpusHasOne) {
  cuda_sim::watch_ranges(true);
  test::run_on_gpus(2, [](Group& g, const test::TestDevice& on) {
    g.all_reduce_sum(on.place(test::exact({8}, DType::kF32, 0))).wait();
  });
  EXPECT_EQ(std::ranges::count(cuda_sim::watch_ranges(false), "all_reduce_sum"), 2);
}

}  // namespace
}  // namespace anabranch
