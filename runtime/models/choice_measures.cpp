#include "runtime/models/choice_measures.h"

#include <cmath>

#include "runtime/models/router_measures.h"

namespace anabranch {

void ChoiceMeasures::add(Measures& to, int64_t layer, const SlotPlan& plan,
                         const Tensor& logits) const {
  if (!to.detailed) return;
  std::vector<int64_t> holders(static_cast<size_t>(plan.rows), 0);
  const Tensor source = plan.source.on_host();
  const Groups groups = seen_by_host(plan.groups);
  for (const int32_t row : source.span<int32_t>()) {
    if (row >= 0) ++holders[static_cast<size_t>(row)];  // -1: a slot that nobody has
  }
  for (int64_t e = 0; e < experts_; ++e) {
    to.add(at(layer, e), static_cast<double>(groups.size(e)));
  }
  for (const int64_t count : holders) to.add(at(layer, experts_ + count), 1);
  to.add(at(layer, 2 * experts_ + 1), entropy_sum(logits));
  to.add(at(layer, 2 * experts_ + 2), static_cast<double>(plan.rows));
}

void ChoiceMeasures::read(std::vector<Reading>& to, const Measures& sums, int64_t layer) const {
  const double rows = sums.at(at(layer, 2 * experts_ + 2));
  if (rows == 0) return;
  const int l = static_cast<int>(layer);
  double slots = 0;
  for (int64_t e = 0; e < experts_; ++e) slots += sums.at(at(layer, e));
  for (int64_t e = 0; e < experts_ && slots > 0; ++e) {
    to.push_back({Metric::kExpertLoad, l, static_cast<int>(e), sums.at(at(layer, e)) / slots});
  }
  double pairs = 0;  // of experts that hold the same row, over all rows
  for (int64_t n = 0; n <= experts_; ++n) {
    const double of_n = sums.at(at(layer, experts_ + n));
    to.push_back({Metric::kExpertsOfToken, l, static_cast<int>(n), of_n / rows});
    pairs += of_n * static_cast<double>(n * (n - 1)) / 2;
  }
  to.push_back({Metric::kUnselectedTokens, l, 0, sums.at(at(layer, experts_)) / rows});
  if (experts_ > 1) {
    const auto E = static_cast<double>(experts_);
    // The mean over E (E - 1) / 2 pairs, of slots / E rows each.
    if (slots > 0) to.push_back({Metric::kExpertOverlap, l, 0, 2 * pairs / ((E - 1) * slots)});
    const double entropy = sums.at(at(layer, 2 * experts_ + 1)) / rows;
    to.push_back({Metric::kRouterEntropy, l, 0, entropy / std::log(E)});
  }
}

}  // namespace anabranch
