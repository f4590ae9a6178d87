#include "data/sampler.h"

#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "tests/data/folder.h"

namespace anabranch {
namespace {

TEST(Permutation, VisitsEverythingOnce) {
  for (const uint64_t n : {1U, 2U, 3U, 4U, 5U, 17U, 64U, 1000U, 65537U}) {
    const Permutation order(n, 42);
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t to = order(i);
      ASSERT_LT(to, n);
      ASSERT_FALSE(seen[to]) << n;
      seen[to] = true;
    }
  }
}

// Spearman's rank correlation of a random permutation is within 4 / sqrt(n) of zero.
TEST(Permutation, LooksRandomAndDependsOnItsKey) {
  constexpr uint64_t kN = 20000;
  const Permutation a(kN, 1), b(kN, 2);
  double with_order = 0, with_other = 0, with_next = 0;
  const double middle = (kN - 1) / 2.0, variance = (kN * double{kN} - 1) / 12;
  for (uint64_t i = 0; i < kN; ++i) {
    const double x = static_cast<double>(a(i)) - middle;
    with_order += x * (static_cast<double>(i) - middle);
    with_other += x * (static_cast<double>(b(i)) - middle);
    with_next += x * (static_cast<double>(a((i + 1) % kN)) - middle);
  }
  const double bound = 4 / std::sqrt(double{kN}) * variance * kN;
  EXPECT_LT(std::abs(with_order), bound);
  EXPECT_LT(std::abs(with_other), bound);
  EXPECT_LT(std::abs(with_next), bound);
}

TEST(Sampler, EpochsVisitEverythingOnceInOrdersOfTheirOwn) {
  const Sampler sampler({100}, {0}, 3);
  std::vector<int64_t> first;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 100; ++i) {
      const Sampler::Place place = sampler.at(epoch * 100 + i);
      EXPECT_EQ(place.epoch, epoch);
      order.push_back(place.position);
    }
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 100U);
    if (epoch == 0) first = order;
    if (epoch > 0) {
      EXPECT_NE(order, first);
    }
  }
  const Sampler other({100}, {0}, 4);
  int64_t equal = 0;
  for (int64_t i = 0; i < 100; ++i) equal += other.at(i).position == first[static_cast<size_t>(i)];
  EXPECT_LT(equal, 10);
}

TEST(Sampler, SourcesTakeTurnsByTheirWeights) {
  const Sampler sampler({1000, 50, 7000}, {0.5, 0.2, 0.3}, 1);
  const double share[] = {0.5, 0.2, 0.3};
  std::vector<int64_t> taken(3);
  std::vector<std::set<std::pair<int64_t, int64_t>>> seen(3);
  for (int64_t i = 0; i < 50000; ++i) {
    const Sampler::Place place = sampler.at(i);
    const auto s = static_cast<size_t>(place.source);
    ASSERT_EQ(sampler.taken(place.source, i), taken[s]);
    ++taken[s];
    EXPECT_TRUE(seen[s].emplace(place.epoch, place.position).second);
    for (size_t k = 0; k < 3; ++k) {
      ASSERT_NEAR(static_cast<double>(taken[k]), share[k] * static_cast<double>(i + 1), 4) << i;
    }
  }
  EXPECT_NEAR(static_cast<double>(std::prev(seen[1].end())->first), 199.5, 0.5);
}

TEST(Sampler, WithoutWeightsEverySourceTakesItsSize) {
  const Sampler sampler({300, 100}, {0, 0}, 1);
  EXPECT_EQ(sampler.taken(0, 16384), 12288);
  EXPECT_EQ(sampler.taken(1, 16384), 4096);
}

TEST(Sampler, RefusesBadWeights) {
  using test::expect_error;
  expect_error(Fault::kConfig, {"below 1/16384"}, [] { const Sampler s({1, 1}, {1, 1e-9}, 1); });
  const Sampler left_out({5, 3, 4}, {0, 1, 3}, 1);
  std::array<int64_t, 3> taken{};
  for (int64_t i = 0; i < 16384; ++i) ++taken[static_cast<size_t>(left_out.at(i).source)];
  EXPECT_EQ(taken, (std::array<int64_t, 3>{0, 4096, 12288}));
  expect_error(Fault::kConfig, {"weight -1"}, [] { const Sampler s({1, 1}, {1, -1}, 1); });
  expect_error(Fault::kConfig, {"weight nan"}, [] { const Sampler s({1, 1}, {1, NAN}, 1); });
}

}  // namespace
}  // namespace anabranch
