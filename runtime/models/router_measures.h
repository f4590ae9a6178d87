// What a run tells of its routers: how evenly experts are chosen, how sure the choice is, what is
// dropped. Of each layer from sums over the tokens of a step.
#pragma once

#include <vector>

#include "core/ops/top_k_route.h"
#include "parallel/comm/group.h"
#include "runtime/models/measures.h"

namespace anabranch {

// The places of the sums: one for the auxiliary losses, then for each layer E counts of choices,
// the dropped ones, the sum of entropies in nats, and the rows of which entropies were taken.
class RouterMeasures {
 public:
  RouterMeasures(int64_t layers, int64_t experts) : layers_(layers), experts_(experts) {}

  [[nodiscard]] size_t places() const { return at(layers_, 0); }

  // Adds what a layer's router decided, if `to` is detailed; then a GPU is waited for.
  void add(Measures& to, int64_t layer, const Tensor& logits, const TopKRoute& route) const;

  void read(std::vector<Reading>& to, const Measures& sums, int64_t layer) const;

 private:
  [[nodiscard]] size_t at(int64_t layer, int64_t place) const {
    return static_cast<size_t>(1 + layer * (experts_ + 3) + place);
  }

  int64_t layers_, experts_;
};

// The sum over the rows of some logits [M, E] of the entropies of their softmax, in nats.
double entropy_sum(const Tensor& some);

// The mean of the positive elements; 0 if there are none. Of all ranks' if there is a group.
double positive_mean(const Tensor& some, Group* ranks = nullptr);

}  // namespace anabranch
