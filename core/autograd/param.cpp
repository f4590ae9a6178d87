#include "core/autograd/param.h"

#include <vector>

#include "core/base/error.h"

namespace anabranch {

void Param::split(int axis, int64_t begin, int64_t extent, int64_t ranks) {
  AB_CHECK(shape == global_shape && master.empty(), name, " is split twice, or too late");
  AB_CHECK(0 <= axis && axis < shape.rank(), name, " of shape ", shape, " has no axis ", axis);
  const int64_t whole = shape[axis];
  AB_CHECK(0 <= begin && 0 < extent && begin + extent <= whole, name, ": [", begin, ", ",
           begin + extent, ") are no indices of an axis of ", whole);
  if (ranks == 1) return;
  if (axis == 0 && owner == Owner::kMatrix) {
    AB_CHECK(matrices * extent % whole == 0, name, ": ", extent, " of ", whole,
             " indices cut one of its ", matrices, " matrices");
    matrices = matrices * extent / whole;
  }
  std::vector<int64_t> extents(shape.begin(), shape.end());
  extents[static_cast<size_t>(axis)] = extent;
  shape = Shape(extents.begin(), extents.end());
  split_axis = axis;
  slice_begin = begin;
  parts = ranks;
  reduce = ReduceGroup::kData;
}

}  // namespace anabranch
