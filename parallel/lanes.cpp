#include "parallel/lanes.h"

#include "core/base/error.h"
#include "core/ops/rows.h"
#include "core/tensor/accumulate.h"

namespace anabranch {

int lane_of(int64_t number, const Group& all) {
  AB_CHECK(kLanes % all.size() == 0, all.size(), " ranks cannot deal ", kLanes,
           " lanes evenly: use 1, 2, 4 or ", kLanes, " ranks");
  return static_cast<int>((number * all.size() + all.rank()) % kLanes);
}

void add_lanes(const Tensor& lanes) {
  const int64_t count = lanes.dim(0);
  for (int64_t step = 1; step < count; step *= 2) {
    for (int64_t i = 0; i + step < count; i += 2 * step) {
      Tensor to = rows_of(lanes, i, 1);
      accumulate(to, rows_of(lanes, i + step, 1));
    }
  }
}

void sum_lanes(const Tensor& lanes, Group& group) {
  group.all_reduce_sum(lanes).wait();
  add_lanes(lanes);
}

}  // namespace anabranch
