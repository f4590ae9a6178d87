#include "core/ops/stream_balance.h"

#include "tests/support/device_checks.h"

namespace anabranch {
namespace {

double balance(const std::vector<double>& gates, int64_t streams, int64_t sequences) {
  const auto rows = std::ssize(gates) / streams;
  const Tensor g = Tensor::of<double>({rows, streams}, gates);
  return test::values(stream_balance(g, sequences).value()).front();
}

TEST(StreamBalance, IsOneWhenEvenAndNWhenCollapsed) {
  EXPECT_DOUBLE_EQ(balance({0.25, 0.25, 0.25, 0.25}, 4, 1), 1);
  EXPECT_DOUBLE_EQ(balance({1, 0, 1, 0, 1, 0}, 2, 1), 2);
  // Each sequence collapsed, on another stream: even over the batch.
  EXPECT_DOUBLE_EQ(balance({1, 0, 0, 1}, 2, 2), 2);
  EXPECT_DOUBLE_EQ(balance({1, 0, 0, 1}, 2, 1), 1);
}

TEST(StreamBalance, GradientsAreThoseOfDifferences) {
  for (const int64_t sequences : {1, 2, 3}) {
    test::expect_gradients([&](const Var& g) { return stream_balance(g, sequences); },
                           test::random({6, 3}, 1), {});
  }
}

TEST(StreamBalance, DevicesAgree) {
  for (const DType type : {DType::kF32, DType::kF64}) {
    for (const int64_t streams : {1, 3, 64, 300}) {
      for (const int64_t sequences : {1, 5}) {
        test::expect_devices_agree(
            [&](const std::vector<Var>& x) { return stream_balance(x[0], sequences); },
            {test::random({5 * 130, streams}, 1, type)}, {}, type);
      }
    }
  }
}

TEST(StreamBalance, Accumulates) {
  test::expect_accumulates([](const Var& g) { return stream_balance(g, 2); },
                           test::random({6, 3}, 1), {});
}

TEST(StreamBalance, RefusesRowsThatDoNotDivide) {
  EXPECT_THROW(stream_balance(test::random({5, 3}, 1), 2), Error);
}

}  // namespace
}  // namespace anabranch
