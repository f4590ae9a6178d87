#include "core/ops/prefix_rows.h"

#include "tests/support/device_checks.h"

namespace anabranch {
namespace {

constexpr int64_t kSequences = 4;

TEST(PrefixRows, AreZeroQueriesWithKeysAndValues) {
  Param k = test::param("k", Tensor::of<double>({2, 1, 1}, {10, 11}));
  Param v = test::param("v", Tensor::of<double>({2, 1, 1}, {20, 21}));
  const Tensor qkv = Tensor::of<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Var y = with_prefix(qkv, k, v, 2);
  EXPECT_EQ(test::values(y.value()), (std::vector<double>{0, 10, 20, 1, 2, 3, 0, 11, 21, 4, 5, 6}));
  EXPECT_EQ(test::values(without_prefix(y, 2, 1).value()), test::values(qkv));
}

TEST(PrefixRows, GradientsAreThoseOfDifferences) {
  Param k = test::param("k", test::random({2, 3, 5}, 1));
  Param v = test::param("v", test::random({2, 3, 5}, 2));
  const auto with = [&](const Var& x) { return with_prefix(x, k, v, kSequences); };
  test::expect_gradients(with, test::random({8, 15}, 3), {&k, &v});
  test::expect_accumulates(with, test::random({8, 15}, 3), {&k, &v});
  const auto without = [](const Var& x) { return without_prefix(x, kSequences, 3); };
  test::expect_gradients(without, test::random({20, 5}, 3), {});
  test::expect_types_agree(without, test::random({20, 5}, 3), {});
}

TEST(PrefixRows, DevicesAgree) {
  for (const DType type : test::kFloating) {
    for (const int64_t n : {0, 3}) {
      for (const int64_t C : {5, 272}) {
        Param k = test::param("k", test::random({2, n, C}, 1, type));
        Param v = test::param("v", test::random({2, n, C}, 2, type));
        const auto with = [&](const std::vector<Var>& x) {
          return with_prefix(x[0], k, v, kSequences);
        };
        test::expect_devices_agree(with, {test::random({8, 3 * C}, 3, type)}, {&k, &v}, type);
        const auto without = [n](const std::vector<Var>& x) {
          return without_prefix(x[0], kSequences, n);
        };
        test::expect_devices_agree(without, {test::random({20, C}, 3, type)}, {}, type);
      }
    }
  }
}

TEST(PrefixRows, AloneAreThoseBeforeNoTokens) {
  for (const auto& device : test::devices()) {
    const Tensor k = device.place(Tensor::of<double>({2, 1, 1}, {10, 11}));
    const Tensor v = device.place(Tensor::of<double>({2, 1, 1}, {20, 21}));
    EXPECT_EQ(test::values(prefix_rows(k, v, 4)),
              (std::vector<double>{0, 10, 20, 0, 10, 20, 0, 11, 21, 0, 11, 21}));
  }
  const Tensor k = test::random({3, 3, 5}, 1);
  EXPECT_THROW((void)prefix_rows(k, k, 4), Error);
}

TEST(PrefixRows, RefuseWhatDoesNotFit) {
  Param k = test::param("k", test::random({3, 3, 5}, 1));
  EXPECT_THROW(with_prefix(test::random({8, 15}, 3), k, k, kSequences), Error);
}

}  // namespace
}  // namespace anabranch
