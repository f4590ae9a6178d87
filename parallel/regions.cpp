#include "parallel/regions.h"

#include "parallel/division.h"

namespace anabranch {

void split_over(const Group* group, Param& w, int axis) {
  if (group == nullptr) return;
  const Division division{w.global_shape[axis], group->size()};
  w.split(axis, division.begin(group->rank()), division.count(group->rank()), group->size());
}

}  // namespace anabranch
