// What a run tells of experts and the rows that they hold: loads, who is left out, who overlaps.
// Of each layer from sums over the tokens of a step.
#pragma once

#include <vector>

#include "core/ops/groups.h"
#include "runtime/models/measures.h"

namespace anabranch {

// The places of the sums: the auxiliary losses, the share of inputs masked, then for each layer the
// rows that each of E experts holds, the rows that 0 .. E experts hold, the sum of the router's
// entropies in nats, and all rows.
class ChoiceMeasures {
 public:
  ChoiceMeasures(int64_t layers, int64_t experts) : layers_(layers), experts_(experts) {}

  // What a model notes besides comes after them.
  [[nodiscard]] size_t places() const { return at(layers_, 0); }

  static constexpr size_t kMasked = 1;  // the place of the share

  // Adds what a layer's experts hold, chosen by `logits` [M, E]; only if `to` is detailed;
  // then a GPU is waited for.
  void add(Measures& to, int64_t layer, const SlotPlan& plan, const Tensor& logits) const;

  // Nothing of a layer that had no rows.
  void read(std::vector<Reading>& to, const Measures& sums, int64_t layer) const;

 private:
  [[nodiscard]] size_t at(int64_t layer, int64_t place) const {
    return static_cast<size_t>(2 + layer * (2 * experts_ + 3) + place);
  }

  int64_t layers_, experts_;
};

}  // namespace anabranch
