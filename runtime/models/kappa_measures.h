// What a run tells of its experts' gates: how they align with the router, the bias that this gives
// them, and kappa. Of each layer, over all slots and hidden units.
//
//   alignment  mean over e, j of cos(r_e, w_ej), and of its magnitude
//   bias       (w_ej . r_e) s / |r_e|^2, the part of a gate's input along its router row
//   kappa      U^tanh(c_s alpha_ej s + c_b b_ej)
//
// with r_e the router's row of expert e, w_ej its gate rows and s = r_e . x the logit of a slot.
// The ranks add up how often which logits were chosen; the rest follows from the weights.
//
// Source: Li et al., "Confidence-Adaptive SwiGLU for Mixture-of-Experts", 2026, figures 4, 5, 9.
#pragma once

#include <vector>

#include "core/ops/kappa_swiglu.h"
#include "core/ops/top_k_route.h"
#include "parallel/comm/group.h"
#include "runtime/models/measures.h"

namespace anabranch {

// What slots meet in a layer.
struct GateWeights {
  const Tensor& router;  // [E, C], of the accumulator's type
  const Tensor& in;      // [E, 2F, C], gate rows first; of the experts here
  const Tensor* alpha;   // [E, F]; of those, null: this term is left out
  const Tensor* b;       // the same
  Kappa kappa;
  int64_t first = 0;       // the first expert that is here
  Group* ranks = nullptr;  // over which experts lie; null: all are here
};

class KappaMeasures {
 public:
  // Its sums lie behind `first` other places: for each layer and expert, the logits of its slots
  // by steps of half from -16 to 16 (what lies beyond, in the last ones), their number and sum.
  KappaMeasures(size_t first, int64_t layers, int64_t experts)
      : first_(first), layers_(layers), experts_(experts) {}

  [[nodiscard]] size_t places() const {
    return static_cast<size_t>(layers_ * experts_ * 2 * kSteps);
  }

  // Adds the logits of a layer's slots, if `to` is detailed; then a GPU is waited for.
  void add(Measures& to, int64_t layer, const TopKRoute& route) const;

  // Percentiles are off by at most the largest magnitude over kResolution. Adds nothing if no slot
  // was counted. All ranks over which experts lie call it.
  void read(std::vector<Reading>& to, const Measures& sums, int64_t layer,
            const GateWeights& weights) const;

  static constexpr int kResolution = 4000;

 private:
  static constexpr int64_t kSteps = 64;

  // Slots of an expert with about the same logit.
  struct Slots {
    int64_t expert;
    double logit, count;
  };

  [[nodiscard]] size_t at(int64_t layer, int64_t expert, int64_t step) const {
    return first_ + static_cast<size_t>(((layer * experts_ + expert) * kSteps + step) * 2);
  }

  [[nodiscard]] std::vector<Slots> slots_of(const Measures& sums, int64_t layer) const;

  size_t first_;
  int64_t layers_, experts_;
};

}  // namespace anabranch
