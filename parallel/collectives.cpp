#include "parallel/collectives.h"

#include <utility>
#include <vector>

#include "core/base/error.h"

namespace anabranch {

Pending gather_rows_start(const Var& x, Group& group) {
  AB_CHECK(x.shape().rank() > 0, "gather_rows needs rows, but x is a scalar");
  Pending pending;
  pending.handle = x;
  pending.group = &group;
  if (group.size() == 1) return pending;
  std::vector<int64_t> extents(x.shape().begin(), x.shape().end());
  extents.front() *= group.size();
  const Shape shape(extents.begin(), extents.end());
  pending.y = x.value().like(shape, x.dtype(), "gather_rows");
  pending.work = group.all_gather(pending.y, x.value());
  if (x.tape() == nullptr) return pending;
  pending.backward = std::make_shared<Work>();
  // dx is already the gradient of x; what is left is to wait until it is there.
  pending.handle = x.tape()->record("gather_rows_start", x.value(), {},
                                    [x, work = pending.backward](Tape& t, const Tensor& dx) {
                                      work->wait();
                                      t.give(x, dx);
                                    });
  return pending;
}

Var gather_rows_finish(const Pending& pending) {
  const Var& x = pending.handle;
  if (pending.group->size() == 1) return x;
  pending.work.wait();
  if (x.tape() == nullptr) return pending.y;
  return x.tape()->record(
      "gather_rows_finish", pending.y, {},
      [x, group = pending.group, work = pending.backward](Tape& t, const Tensor& dy) {
        const Tensor dx = x.value().like("gradient");
        *work = group->reduce_scatter_sum(dx, dy);
        t.give(x, dx);
      });
}

}  // namespace anabranch
