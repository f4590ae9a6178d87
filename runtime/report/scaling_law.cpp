#include "runtime/report/scaling_law.h"

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What is held while the rest is fitted.
struct Held {
  std::optional<double> floor, falling;
};

struct LinearFit {
  double floor = 0, falling = 0, squares = 0;
};

class Fitter {
 public:
  Fitter(const std::vector<SizedLoss>& runs, double size) : runs_(runs) {
    for (const SizedLoss& run : runs) logs_.push_back(std::log(run.size / size));
  }

  // The best E and share of what falls for an exponent.
  [[nodiscard]] LinearFit at(double exponent, const Held& held) const;

  // The exponent with the least sum of squares, of a grid and then by golden section.
  [[nodiscard]] double best_exponent(const Held& held) const;

  [[nodiscard]] LinearFit best(const Held& held) const { return at(best_exponent(held), held); }

 private:
  const std::vector<SizedLoss>& runs_;
  std::vector<double> logs_;
};

LinearFit Fitter::at(double exponent, const Held& held) const {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  std::vector<double> powers;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const double power = std::exp(-exponent * logs_[i]);
    powers.push_back(power);
    n += 1;
    x += power;
    y += runs_[i].loss;
    xx += power * power;
    xy += power * runs_[i].loss;
  }
  LinearFit fit;
  if (held.floor) {
    fit.floor = *held.floor;
    fit.falling = held.falling.value_or((xy - fit.floor * x) / xx);
  } else if (held.falling) {
    fit.falling = *held.falling;
    fit.floor = (y - fit.falling * x) / n;
  } else {
    fit.falling = (xy - x * y / n) / (xx - x * x / n);
    fit.floor = (y - fit.falling * x) / n;
  }
  for (size_t i = 0; i < runs_.size(); ++i) {
    const double off = runs_[i].loss - fit.floor - fit.falling * powers[i];
    fit.squares += off * off;
  }
  return fit;
}

double Fitter::best_exponent(const Held& held) const {
  constexpr int kGrid = 120;
  const double ratio = std::pow(kLargestExponent / kLeastExponent, 1.0 / kGrid);
  double best = kLeastExponent, least = kInfinity;
  for (int i = 0; i <= kGrid; ++i) {
    const double exponent = kLeastExponent * std::pow(ratio, i);
    const double squares = at(exponent, held).squares;
    if (squares < least) {
      least = squares;
      best = exponent;
    }
  }
  double low = std::max(best / ratio, kLeastExponent);
  double high = std::min(best * ratio, kLargestExponent);
  constexpr double kGolden = 0.6180339887498949;
  for (int i = 0; i < 60; ++i) {
    const double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
    const bool left = at(a, held).squares <= at(b, held).squares;
    (left ? high : low) = left ? b : a;
  }
  return (low + high) / 2;
}

// The end of an interval: how far from `from`, in the direction of `step`, the sum of squares stays
// below `most`; infinite if it does beyond `limit`.
double edge(const std::function<double(double)>& squares, double most, double from, double step,
            double limit) {
  const auto inside = [&](double value) { return squares(value) <= most; };
  double in = from, out = from + step;
  for (int i = 0; inside(out); ++i) {
    const bool beyond = step > 0 ? out >= limit : out <= limit;
    if (beyond || i == 60) return step > 0 ? kInfinity : -kInfinity;
    in = out;
    step *= 2;
    out = from + step;
    out = step > 0 ? std::min(out, limit) : std::max(out, limit);
  }
  for (int i = 0; i < 50; ++i) {
    const double middle = (in + out) / 2;
    (inside(middle) ? in : out) = middle;
  }
  return (in + out) / 2;
}

Interval profile(const std::function<double(double)>& squares, double most, double best,
                 Interval limits) {
  const double step = 1e-4 * std::max(std::abs(best), 1e-3);
  return {edge(squares, most, best, -step, limits.low),
          edge(squares, most, best, step, limits.high)};
}

void set_intervals(ScalingLaw& law, const Fitter& fitter, double squares, int64_t freedom) {
  const double t = student_t_quantile(0.975, freedom), f = static_cast<double>(freedom);
  // Rounding's share, so that an exact fit has an interval too.
  const double most = squares * (1 + t * t / f) + 1e-24 * static_cast<double>(law.runs);
  const Held base{law.has_floor ? std::nullopt : std::optional(0.0), {}};
  law.exponent.interval = profile([&](double value) { return fitter.at(value, base).squares; },
                                  most, law.exponent.value, {kLeastExponent, kLargestExponent});
  law.falling.interval = profile(
      [&](double value) {
        return fitter.best({base.floor, value}).squares;
      },
      most, law.falling.value, {0, kInfinity});
  if (!law.has_floor) return;
  law.floor.interval = profile(
      [&](double value) {
        return fitter.best({value, {}}).squares;
      },
      most, law.floor.value, {-kInfinity, kInfinity});
  // An exponent as small as one likes is a line over log N, which falls without end.
  if (!std::isinf(law.exponent.interval.low)) return;
  law.floor.interval.low = -kInfinity;
  law.falling.interval.high = kInfinity;
}

}  // namespace

double ScalingLaw::at(double n) const {
  return floor.value + falling.value * std::exp(-exponent.value * std::log(n / size));
}

double ScalingLaw::scale() const { return falling.value * std::pow(size, exponent.value); }

ScalingLaw fit_scaling_law(const std::vector<SizedLoss>& runs) {
  ScalingLaw law;
  std::set<double> sizes;
  double logs = 0;
  for (const SizedLoss& run : runs) {
    AB_CHECK(run.size > 0 && std::isfinite(run.loss), "a run of size ", run.size, ", loss ",
             run.loss);
    sizes.insert(run.size);
    logs += std::log(run.size);
  }
  law.runs = std::ssize(runs);
  law.sizes = std::ssize(sizes);
  if (law.sizes < 2) {
    law.refused = join(counted(law.sizes, "size"), ": a law takes two, and three with a floor");
    return law;
  }
  law.size = std::exp(logs / static_cast<double>(runs.size()));
  law.has_floor = law.sizes > 2;
  const Fitter fitter(runs, law.size);
  const Held held{law.has_floor ? std::nullopt : std::optional(0.0), {}};
  law.exponent.value = fitter.best_exponent(held);
  const LinearFit fit = fitter.at(law.exponent.value, held);
  law.floor.value = fit.floor;
  law.falling.value = fit.falling;
  if (fit.falling <= 0) {
    law.refused = "losses do not fall with size";
  } else if (law.exponent.value < kLeastExponent * 1.01) {
    law.refused = law.has_floor ? "losses fall no faster at small sizes than at large ones"
                                : "losses do not fall with size, or hardly";
  } else if (law.exponent.value > kLargestExponent * 0.99) {
    law.refused = "losses stop falling after the smallest size";
  }
  const int64_t freedom = law.runs - (law.has_floor ? 3 : 2);
  if (!law.refused.empty() || freedom < 1) return law;
  law.residual = std::sqrt(fit.squares / static_cast<double>(freedom));
  set_intervals(law, fitter, fit.squares, freedom);
  return law;
}

}  // namespace anabranch
