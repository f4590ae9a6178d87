#include "runtime/models/router_measures.h"

#include <algorithm>
#include <cmath>

namespace anabranch {

void RouterMeasures::add(Measures& to, int64_t layer, const Tensor& logits,
                         const TopKRoute& route) const {
  if (!to.detailed) return;
  const Tensor demand = route.demand.on_host();
  for (int64_t i = 0; i < demand.count(); ++i) {
    to.add(at(layer, i % experts_), static_cast<double>(demand.data<int64_t>()[i]));
  }
  const Tensor slots = route.slot.on_host();
  to.add(at(layer, experts_), static_cast<double>(std::ranges::count(slots.span<int32_t>(), -1)));
  to.add(at(layer, experts_ + 1), entropy_sum(logits));
  to.add(at(layer, experts_ + 2), static_cast<double>(logits.dim(0)));
}

void RouterMeasures::read(std::vector<Reading>& to, const Measures& sums, int64_t layer) const {
  double choices = 0;
  for (int64_t e = 0; e < experts_; ++e) choices += sums.at(at(layer, e));
  if (choices == 0) return;
  const int l = static_cast<int>(layer);
  for (int64_t e = 0; e < experts_; ++e) {
    to.push_back({Metric::kExpertLoad, l, static_cast<int>(e), sums.at(at(layer, e)) / choices});
  }
  to.push_back({Metric::kExpertDrops, l, 0, sums.at(at(layer, experts_)) / choices});
  const double rows = sums.at(at(layer, experts_ + 2));
  const double most = experts_ > 1 ? std::log(static_cast<double>(experts_)) : 1;
  if (rows == 0) return;
  to.push_back({Metric::kRouterEntropy, l, 0, sums.at(at(layer, experts_ + 1)) / rows / most});
}

double entropy_sum(const Tensor& some) {
  const Tensor logits = some.on_host();
  const int64_t E = logits.dim(1);
  double entropy = 0;
  dispatch(logits.dtype(), [&]<class T>() {
    const T* s = logits.data<T>();
    for (int64_t i = 0; i < logits.dim(0); ++i, s += E) {
      double top = -HUGE_VAL, sum = 0, weighted = 0;
      for (int64_t e = 0; e < E; ++e) {
        top = std::max(top, static_cast<double>(static_cast<Accumulator<T>>(s[e])));
      }
      for (int64_t e = 0; e < E; ++e) {
        const double d = static_cast<double>(static_cast<Accumulator<T>>(s[e])) - top;
        sum += std::exp(d);
        weighted += d * std::exp(d);
      }
      entropy += std::log(sum) - weighted / sum;
    }
  });
  return entropy;
}

double positive_mean(const Tensor& some, Group* ranks) {
  const Tensor t = some.on_host();
  double sum = 0, count = 0;
  dispatch(t.dtype(), [&]<class T>() {
    for (const T& v : t.span<T>()) {
      const auto value = static_cast<double>(static_cast<Accumulator<T>>(v));
      sum += std::max(value, 0.0);
      count += value > 0 ? 1 : 0;
    }
  });
  if (ranks != nullptr) {
    const Tensor both = Tensor::of<double>({2}, {sum, count});
    ranks->all_reduce_sum(both).wait();
    sum = both.data<double>()[0];
    count = both.data<double>()[1];
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace anabranch
