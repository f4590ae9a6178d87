// How losses fall with size: L(N) = E + A N^-alpha over runs of several sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/report/statistics.h"

namespace anabranch {

struct SizedLoss {
  double size;  // non-embedding parameters, or FLOPs; above 0
  double loss;  // nats per token, of one run; finite
};

// A constant with its 95% interval; a side that the data leave open is infinite, and both are
// not-a-number where there are no more runs than constants.
struct FittedConstant {
  double value = 0;
  Interval interval;
};

struct ScalingLaw {
  std::string refused;     // why there is none; empty: there is
  bool has_floor = false;  // E was fitted; of two sizes it is 0
  FittedConstant floor;    // E, nats
  // A s^-alpha where s is `size`, the geometric mean of the runs' sizes: of the loss there, what
  // falls with size. A itself is share_at_size * size^alpha.
  FittedConstant falling;
  FittedConstant exponent;  // alpha
  double size = 0;
  double residual = 0;  // root of the mean squared residual, by degrees of freedom; nats
  int64_t runs = 0, sizes = 0;

  [[nodiscard]] double at(double n) const;
  [[nodiscard]] double scale() const;  // A
};

// Fits by least squares: E and A are linear for a given alpha, and the best alpha of a grid from
// kLeastExponent to kLargestExponent is refined by golden section. Two sizes: a power law without
// E, on the losses too. Intervals are by profile likelihood: values of a constant for which the
// best fit has a sum of squares of at most (1 + t(0.975, f)^2 / f) times the least, with f = runs -
// constants. Runs of different seeds are taken as independent and equally noisy.
//
// Refused: fewer than two sizes; losses that do not fall; an exponent at the end of the grid.
ScalingLaw fit_scaling_law(const std::vector<SizedLoss>& runs);

inline constexpr double kLeastExponent = 0.005, kLargestExponent = 4;

}  // namespace anabranch
