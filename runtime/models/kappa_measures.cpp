#include "runtime/models/kappa_measures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/parallel_for.h"
#include "core/ops/vec_math.h"

namespace anabranch {
namespace {

constexpr double kWidth = 0.5;  // of a step of logits

// Counts of values between -largest and largest.
class Spectrum {
 public:
  explicit Spectrum(double largest)
      : largest_(largest), counts_(static_cast<size_t>(2 * kHalf + 1), 0.0) {}

  void add(double value, double count) {
    const double place = largest_ > 0 ? value / largest_ * kHalf : 0;
    counts_[static_cast<size_t>(std::lround(place) + kHalf)] += count;
    total_ += count;
  }

  // The smallest value that at least this share of the counts does not exceed.
  [[nodiscard]] double percentile(double share) const {
    double below = 0;
    int place = -kHalf;
    for (; place < kHalf; ++place) {
      below += counts_[static_cast<size_t>(place + kHalf)];
      if (below >= share * total_) break;
    }
    return place * largest_ / kHalf;
  }

 private:
  static constexpr int kHalf = KappaMeasures::kResolution / 2;
  double largest_, total_ = 0;
  std::vector<double> counts_;
};

// Of every gate row: its cosine to the router's row, and its product with it over that row's
// square.
struct Alignment {
  std::vector<double> cosine, projection;  // [E * F]
};

template <class T, class A = Accumulator<T>>
void align(Alignment& to, const T* gates, const A* router, int64_t width, int64_t row) {
  const A square = lane_sum<A>(width, [=](int64_t c) { return router[c] * router[c]; });
  const A norm = lane_sum<A>(width, [=](int64_t c) { return A(gates[c]) * A(gates[c]); });
  const A product = lane_sum<A>(width, [=](int64_t c) { return A(gates[c]) * router[c]; });
  const double scale =
      std::sqrt(static_cast<double>(square)) * std::sqrt(static_cast<double>(norm));
  to.cosine[static_cast<size_t>(row)] = scale > 0 ? static_cast<double>(product) / scale : 0;
  to.projection[static_cast<size_t>(row)] =
      square > 0 ? static_cast<double>(product) / static_cast<double>(square) : 0;
}

Alignment alignment_of(const GateWeights& weights) {
  const int64_t E = weights.in.dim(0), F = weights.in.dim(1) / 2, C = weights.in.dim(2);
  Alignment all{std::vector<double>(static_cast<size_t>(E * F)),
                std::vector<double>(static_cast<size_t>(E * F))};
  const Tensor in = weights.in.on_host(), all_routers = weights.router.on_host();
  dispatch(in.dtype(), [&]<class T>() {
    const T* gates = in.data<T>();
    const auto* router = all_routers.data<Accumulator<T>>();
    parallel_for(E * F, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t e = row / F, j = row % F;
        align(all, gates + (e * 2 * F + j) * C, router + (weights.first + e) * C, C, row);
      }
    });
  });
  return all;
}

std::vector<double> doubles(const Tensor* t, int64_t count) {
  std::vector<double> all(static_cast<size_t>(count), 0.0);
  if (t == nullptr) return all;
  const Tensor here = t->on_host();
  dispatch(here.dtype(), [&]<class T>() {
    const T* from = here.data<T>();
    std::transform(from, from + count, all.begin(),
                   [](T v) { return static_cast<double>(static_cast<Accumulator<T>>(v)); });
  });
  return all;
}

// What ranks say of their experts' `units` hidden units each, of all experts.
std::vector<double> of_all(const GateWeights& weights, std::vector<double> here, int64_t experts,
                           int64_t units) {
  if (weights.ranks == nullptr) return here;
  Tensor all({experts * units}, DType::kF64);
  all.fill_zero();
  std::ranges::copy(here, all.data<double>() + weights.first * units);
  weights.ranks->all_reduce_sum(all).wait();
  return {all.span<double>().begin(), all.span<double>().end()};
}

// The percentiles of slope * logit + offset over slots and the hidden units of their experts.
template <class Slots>
std::array<double, 3> percentiles(const std::vector<Slots>& slots, const std::vector<double>& slope,
                                  const std::vector<double>& offset, int64_t units) {
  const auto for_each = [&](auto&& f) {
    for (const Slots& s : slots) {
      for (int64_t j = s.expert * units; j < (s.expert + 1) * units; ++j) {
        const auto i = static_cast<size_t>(j);
        f(slope[i] * s.logit + offset[i], s.count);
      }
    }
  };
  double largest = 0;
  for_each([&](double value, double) { largest = std::max(largest, std::abs(value)); });
  if (!std::isfinite(largest)) return {largest, largest, largest};
  Spectrum spectrum(largest);
  for_each([&](double value, double count) { spectrum.add(value, count); });
  return {spectrum.percentile(0.05), spectrum.percentile(0.5), spectrum.percentile(0.95)};
}

}  // namespace

void KappaMeasures::add(Measures& to, int64_t layer, const TopKRoute& route) const {
  if (!to.detailed) return;
  const Groups groups = seen_by_host(route.plan.groups);
  const Tensor logits = route.selected.value().on_host();
  dispatch(logits.dtype(), [&]<class T>() {
    const T* s = logits.data<T>();
    for (int64_t e = 0; e < groups.count(); ++e) {
      for (int64_t row = groups.begin(e); row < groups.end(e); ++row) {
        const auto logit = static_cast<double>(static_cast<Accumulator<T>>(s[row]));
        if (!std::isfinite(logit)) continue;
        const double step = std::floor(logit / kWidth) + static_cast<double>(kSteps) / 2;
        const double inside = std::clamp(step, 0.0, static_cast<double>(kSteps - 1));
        const size_t place = at(layer, e, static_cast<int64_t>(inside));
        to.add(place, 1);
        to.add(place + 1, logit);
      }
    }
  });
}

std::vector<KappaMeasures::Slots> KappaMeasures::slots_of(const Measures& sums,
                                                          int64_t layer) const {
  std::vector<Slots> slots;
  for (int64_t e = 0; e < experts_; ++e) {
    for (int64_t step = 0; step < kSteps; ++step) {
      const size_t place = at(layer, e, step);
      const double count = sums.at(place);
      if (count > 0) slots.push_back({e, sums.at(place + 1) / count, count});
    }
  }
  return slots;
}

void KappaMeasures::read(std::vector<Reading>& to, const Measures& sums, int64_t layer,
                         const GateWeights& weights) const {
  const std::vector<Slots> slots = slots_of(sums, layer);
  if (slots.empty()) return;
  const auto tell = [&](Metric metric, double value) {
    to.push_back({metric, static_cast<int>(layer), 0, value});
  };
  const int64_t units = weights.in.dim(1) / 2, rows = experts_ * units;
  Alignment alignment = alignment_of(weights);
  alignment.cosine = of_all(weights, std::move(alignment.cosine), experts_, units);
  alignment.projection = of_all(weights, std::move(alignment.projection), experts_, units);
  double signed_sum = 0, sum = 0;
  for (const double cosine : alignment.cosine) {
    signed_sum += cosine;
    sum += std::abs(cosine);
  }
  tell(Metric::kRouterGateCosine, signed_sum / static_cast<double>(rows));
  tell(Metric::kRouterGateAlignment, sum / static_cast<double>(rows));
  std::vector<double> zeros(static_cast<size_t>(rows), 0.0);
  const auto bias = percentiles(slots, alignment.projection, zeros, units);
  tell(Metric::kInducedBiasLow, bias[0]);
  tell(Metric::kInducedBiasMedian, bias[1]);
  tell(Metric::kInducedBiasHigh, bias[2]);
  if (weights.alpha == nullptr && weights.b == nullptr) return;
  const int64_t here = weights.in.dim(0) * units;
  std::vector<double> slope = of_all(weights, doubles(weights.alpha, here), experts_, units);
  std::vector<double> offset = of_all(weights, doubles(weights.b, here), experts_, units);
  for (double& v : slope) v *= weights.kappa.score_scale;
  for (double& v : offset) v *= weights.kappa.bias_scale;
  // kappa rises with what is inside tanh, so its percentiles are those of that.
  const auto inside = percentiles(slots, slope, offset, units);
  const auto kappa = [&](double t) { return std::pow(weights.kappa.upper, std::tanh(t)); };
  tell(Metric::kKappaLow, kappa(inside[0]));
  tell(Metric::kKappaMedian, kappa(inside[1]));
  tell(Metric::kKappaHigh, kappa(inside[2]));
}

}  // namespace anabranch
