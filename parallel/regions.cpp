#include "parallel/regions.h"

#include "parallel/division.h"

namespace anabranch {

void Regions::for_sources(Tape* tape, const std::function<void(int source)>& each) const {
  const bool apart = tape != nullptr && sources() > 1;
  const int own = tape != nullptr ? tape->lane() : 0;
  for (int source = 0; source < sources(); ++source) {
    // Ranks of a model group are consecutive, and so are their samples.
    if (apart) tape->set_lane(own - model_rank() + source);
    each(source);
  }
  if (apart) tape->set_lane(own);
}

void split_over(const Group* group, Param& w, int axis) {
  if (group == nullptr) return;
  const Division division{w.global_shape[axis], group->size()};
  w.split(axis, division.begin(group->rank()), division.count(group->rank()), group->size());
}

}  // namespace anabranch
