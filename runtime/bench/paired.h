// How two configurations compare when they take turns on the same cores.
#pragma once

#include <cstdint>
#include <span>

namespace anabranch {

// The middle ratio of pairs, and two of the ratios themselves that its true value lies between.
struct PairedRatio {
  double median = 0;         // the mean of the middle two for an even number of pairs
  double low = 0, high = 0;  // order statistics, as far inside as their confidence allows
  double confidence = 0;     // the probability that they enclose the true median; below 0.95 only
                             // where there are fewer than six pairs, which cannot tell it
  int64_t pairs = 0;
};

// The ratios numerator[i] / denominator[i], all positive. Whatever slows both of a pair alike
// cancels, and no shape of noise is assumed: a number of ratios below the median is binomial.
//
// Source: David & Nagaraja, "Order Statistics", 2003, section 7.1.
[[nodiscard]] PairedRatio paired_ratio(std::span<const double> numerator,
                                       std::span<const double> denominator);

// The probability that n throws of a coin show at most k heads.
[[nodiscard]] double coin_at_most(int64_t k, int64_t n);

// Calls first(round) and second(round) once with round -1, which is not to count, and then with
// every round below `rounds`. Who goes first alternates, so that none is always the one that runs
// on a warmer machine.
template <class First, class Second>
void take_turns(int64_t rounds, First&& first, Second&& second) {
  for (int64_t round = -1; round < rounds; ++round) {
    const bool swap = round % 2 != 0;
    if (swap) second(round);
    first(round);
    if (!swap) second(round);
  }
}

}  // namespace anabranch
