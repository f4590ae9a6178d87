#include "parallel/lanes.h"

#include "core/base/error.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kSamples = 24, kWidth = 100;

Tensor sample(int64_t i) {
  return test::random({kWidth}, static_cast<uint32_t>(i) + 1, DType::kF32);
}

// What the ranks of a group make of all samples, each rank having those that are dealt to it.
Tensor sum_over(Group& group) {
  Tensor lanes({kLanes, kWidth}, DType::kF32);
  lanes.fill_zero();
  for (int64_t j = 0; j < kSamples / group.size(); ++j) {
    auto* to = lanes.data<float>() + lane_of(j, group) * kWidth;
    const Tensor x = sample(j * group.size() + group.rank());
    for (int64_t c = 0; c < kWidth; ++c) to[c] += x.data<float>()[c];
  }
  sum_lanes(lanes, group);
  return lanes.view(0, {kWidth});
}

TEST(Lanes, SumsAreTheSameWhateverTheRanks) {
  const Tensor want = sum_over(*self_group());
  for (const int ranks : {2, 4, 8}) {
    run_on_threads(ranks, [&](Group& group) {
      test::expect_equal(sum_over(group), want, join(ranks, " ranks"));
    });
  }
  // What is compared is no sum that any order gives.
  Tensor in_order = sample(0);
  for (int64_t i = 1; i < kSamples; ++i) {
    const Tensor x = sample(i);
    for (int64_t c = 0; c < kWidth; ++c) in_order.data<float>()[c] += x.data<float>()[c];
  }
  EXPECT_NE(test::values(in_order), test::values(want));
}

TEST(Lanes, AreAddedAsABalancedTree) {
  // 2^24 + 1 is no float: what is added to it one by one is lost.
  const float big = 1 << 24;
  const Tensor lanes = Tensor::of<float>({8, 1}, {big, 0, 1, 1, 1, 1, 1, 1});
  add_lanes(lanes);
  EXPECT_EQ(*lanes.data<float>(), big + 6);
}

TEST(Lanes, RanksThatDoNotDivideThemAreRefused) {
  run_on_threads(3, [](Group& group) { EXPECT_THROW((void)lane_of(0, group), Error); });
}

}  // namespace
}  // namespace anabranch
