#include "core/tensor/convert.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF64};

TEST(Convert, RoundsToTheTypeOnEveryDevice) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType from : kTypes) {
      for (const DType to : kTypes) {
        for (const int64_t n : {0, 1, 7, 64, 1001}) {
          const Tensor x = test::random({n}, 1, from);
          Tensor y = device.place(test::random({n}, 2, to));
          convert(y, device.place(x));
          EXPECT_TRUE(test::same_bytes(y, test::cast(x, to))) << device.name << n;
        }
      }
    }
  }
}

TEST(Convert, AddsInTheWiderTypeAndRoundsOnce) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType from : kTypes) {
      for (const DType to : kTypes) {
        const Tensor x = test::random({131}, 1, from), there = test::random({131}, 2, to);
        Tensor y = device.place(there.clone());
        add_converted(y, device.place(x));
        std::vector<double> sums = test::values(there);
        const std::vector<double> terms = test::values(test::cast(x, accumulator_of(to)));
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
        const Tensor want =
            test::cast(test::cast(Tensor::of<double>({131}, sums), accumulator_of(to)), to);
        EXPECT_TRUE(test::same_bytes(y, want)) << device.name << name_of(from) << name_of(to);
      }
    }
  }
}

TEST(Convert, TakesViewsThatAreNotAligned) {
  for (const test::TestDevice& device : test::devices()) {
    const Tensor x = test::random({40}, 1, DType::kF32);
    Tensor y = device.place(test::full({41}, 0, DType::kBF16)), part = y.view(1, {39});
    convert(part, device.place(x).view(1, {39}));
    std::vector<double> want = test::values(test::cast(x, DType::kBF16));
    want[0] = 0;
    want.push_back(0);
    test::expect_near(y, want, test::kExact, device.name);
  }
}

TEST(Convert, RefusesOtherCountsAndDevices) {
  for (const test::TestDevice& device : test::devices()) {
    Tensor y = device.place(test::full({3}, 0));
    EXPECT_THROW(convert(y, device.place(test::full({4}, 0))), Error);
    EXPECT_THROW(add_converted(y, device.place(test::full({4}, 0))), Error);
    if (device.pool) {
      EXPECT_THROW(convert(y, test::full({3}, 0)), Error);
    }
  }
}

}  // namespace
}  // namespace anabranch
