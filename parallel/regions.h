// Where the layers of a model meet other ranks: tokens travel to the streams or experts of a layer,
// and come home.
#pragma once

#include <functional>

#include "core/autograd/tape.h"
#include "parallel/comm/group.h"

namespace anabranch {

// What the ranks of a stream region have of every layer: whole streams, each for all tokens, or a
// slice of every stream along the hidden axis.
enum class StreamLayout : uint8_t { kGather, kSlice };

// The groups of a model's regions. Without groups everything is on this rank.
struct Regions {
  Group* model = nullptr;  // over whose ranks streams or experts lie
  Group* pool = nullptr;   // whose sequences together are one pool of tokens
  StreamLayout streams = StreamLayout::kGather;
  // Every sum is made in an order that ranks do not matter to: gradients in lanes (lanes.h), sums
  // over streams as a tree, and what comes from a rank is computed with by itself.
  bool any_layout = false;

  [[nodiscard]] int model_size() const { return model == nullptr ? 1 : model->size(); }

  [[nodiscard]] int model_rank() const { return model == nullptr ? 0 : model->rank(); }

  [[nodiscard]] int pool_size() const { return pool == nullptr ? 1 : pool->size(); }

  // How many parts the rows of the model group are computed with in: all at once, or each rank's.
  [[nodiscard]] int sources() const { return any_layout ? model_size() : 1; }

  // Calls each(source) for those in rank order, with the gradients of parameters in the lane of
  // that rank's samples.
  void for_sources(Tape* tape, const std::function<void(int source)>& each) const;
};

// Leaves this rank of the group its part of an axis of `w`, by Division; null: all of it.
void split_over(const Group* group, Param& w, int axis);

}  // namespace anabranch
