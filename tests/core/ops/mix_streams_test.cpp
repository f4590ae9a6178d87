#include "core/ops/mix_streams.h"

#include "tests/support/device_checks.h"

namespace anabranch {
namespace {

TEST(MixStreams, IsTheEquationByHand) {
  const Tensor h = Tensor::of<double>({1, 4}, {1, 2, 5, 10}),
               a = Tensor::of<double>({1, 2}, {1, 0});
  EXPECT_EQ(test::values(mix_streams(h, a, 0).value()), (std::vector<double>{1, 2}));
  EXPECT_EQ(test::values(mix_streams(h, a, 0.5).value()), (std::vector<double>{2, 4}));
  EXPECT_EQ(test::values(mix_streams(h, a, 1).value()), (std::vector<double>{3, 6}));
  EXPECT_EQ(test::values(mean_streams(h, 2).value()), (std::vector<double>{3, 6}));
}

TEST(MixStreams, GradientsAreThoseOfDifferences) {
  test::expect_gradients([](const std::vector<Var>& x) { return mix_streams(x[0], x[1], 0.1); },
                         {test::random({4, 15}, 1), test::random({4, 3}, 2)}, {});
  test::expect_gradients([](const Var& h) { return mean_streams(h, 3); }, test::random({4, 15}, 1),
                         {});
}

Var mean(const Var& h) { return mean_streams(h, 3); }

TEST(MixStreams, TypesAgree) { test::expect_types_agree(mean, test::random({4, 60}, 1), {}); }

TEST(MixStreams, DevicesAgree) {
  const auto mix = [](const std::vector<Var>& x) { return mix_streams(x[0], x[1], 0.1); };
  for (const DType type : test::kFloating) {
    for (const int64_t streams : {1, 4, 7}) {
      for (const int64_t width : {5, 312}) {
        test::expect_devices_agree(mix,
                                   {test::random({11, streams * width}, 1, type),
                                    test::random({11, streams}, 2, accumulator_of(type))},
                                   {}, type);
      }
    }
  }
}

TEST(MixStreams, Accumulates) { test::expect_accumulates(mean, test::random({4, 15}, 1), {}); }

TEST(MixStreams, RefusesWhatDoesNotFit) {
  EXPECT_THROW(mix_streams(test::random({4, 15}, 1), test::random({4, 2}, 2), 0), Error);
}

}  // namespace
}  // namespace anabranch
