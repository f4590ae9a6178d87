#include "runtime/bench/paired.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace anabranch {
namespace {

TEST(Paired, CoinsAreBinomial) {
  EXPECT_DOUBLE_EQ(coin_at_most(0, 5), 1.0 / 32);
  EXPECT_NEAR(coin_at_most(1, 4), 5.0 / 16, 1e-14);
  EXPECT_NEAR(coin_at_most(5, 20), 21700.0 / 1048576, 1e-13);  // 1 + 20 + 190 + 1140 + 4845 + 15504
  EXPECT_NEAR(coin_at_most(1500, 3001), 0.5, 1e-9);
  EXPECT_NEAR(coin_at_most(9, 9), 1, 1e-13);
}

// Of 20 ratios the sixth from either end: P(at most 5 heads) = 0.0207, P(at most 6) = 0.0577.
TEST(Paired, TwentyPairsGiveTheSixthFromEitherEnd) {
  std::vector<double> numerator, denominator;
  for (int i = 20; i > 0; --i) {
    denominator.push_back(i % 3 + 1);  // what slows both of a pair alike does not show
    numerator.push_back(i * denominator.back());
  }
  const PairedRatio ratio = paired_ratio(numerator, denominator);
  EXPECT_EQ(ratio.pairs, 20);
  EXPECT_EQ(ratio.median, 10.5);
  EXPECT_EQ(ratio.low, 6);
  EXPECT_EQ(ratio.high, 15);
  EXPECT_NEAR(ratio.confidence, 1 - 2 * 21700.0 / 1048576, 1e-13);
}

TEST(Paired, FewPairsSayHowLittleTheyKnow) {
  const PairedRatio one = paired_ratio(std::vector{3.0}, std::vector{2.0});
  EXPECT_EQ(one.median, 1.5);
  EXPECT_EQ(one.low, 1.5);
  EXPECT_EQ(one.high, 1.5);
  EXPECT_EQ(one.confidence, 0);
  const PairedRatio five =
      paired_ratio(std::vector{5.0, 1.0, 4.0, 2.0, 3.0}, std::vector{1.0, 1.0, 1.0, 1.0, 1.0});
  EXPECT_EQ(five.median, 3);
  EXPECT_EQ(five.low, 1);
  EXPECT_EQ(five.high, 5);
  EXPECT_NEAR(five.confidence, 0.9375, 1e-14);
  const PairedRatio six = paired_ratio(std::vector{6.0, 5.0, 1.0, 4.0, 2.0, 3.0},
                                       std::vector{1.0, 1.0, 1.0, 1.0, 1.0, 1.0});
  EXPECT_NEAR(six.confidence, 0.96875, 1e-14);
}

TEST(Paired, WhatMakesNoPairsIsRefused) {
  EXPECT_THROW((void)paired_ratio(std::vector<double>{}, std::vector<double>{}), Error);
  EXPECT_THROW((void)paired_ratio(std::vector{1.0}, std::vector{1.0, 2.0}), Error);
  EXPECT_THROW((void)paired_ratio(std::vector{1.0}, std::vector{0.0}), Error);
}

TEST(Paired, TurnsAlternateAfterOneThatDoesNotCount) {
  std::string order;
  std::vector<int64_t> rounds;
  take_turns(
      3,
      [&](int64_t round) {
        order += 'a';
        rounds.push_back(round);
      },
      [&](int64_t round) {
        order += 'b';
        rounds.push_back(round);
      });
  EXPECT_EQ(order, "baabbaab");
  EXPECT_EQ(rounds, (std::vector<int64_t>{-1, -1, 0, 0, 1, 1, 2, 2}));
}

}  // namespace
}  // namespace anabranch
