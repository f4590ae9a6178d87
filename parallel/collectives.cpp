#include "parallel/collectives.h"

#include "core/base/error.h"
#include "core/ops/rows.h"
#include "core/tensor/convert.h"

namespace anabranch {
namespace {

// Where a gradient goes. Values are not kept: neither their memory nor their shapes are needed.
Var place_of(const Var& x) { return {Tensor(), x.tape(), x.id()}; }

}  // namespace

Pending share_rows_start(const Var& x, Group& group, PartialGrad grad) {
  AB_CHECK(x.shape().rank() > 0, "share_rows needs rows, but x is a scalar");
  Pending pending;
  pending.handle = x;
  pending.group = &group;
  if (group.size() == 1) return pending;
  pending.wide_grad = grad == PartialGrad::kWide;
  const Shape shape = with_rows(x.shape(), group.size() * x.dim(0));
  pending.y = x.value().like(shape, x.dtype(), "share_rows");
  pending.work = group.all_gather(pending.y, x.value());
  if (x.tape() == nullptr) return pending;
  pending.backward = std::make_shared<Work>();
  // dx is already the sum; what is left is to wait until it is there.
  const auto back = [to = place_of(x), type = x.dtype(), work = pending.backward](
                        Tape& t, const Tensor& dx) {
    work->wait();
    t.give(to, converted(dx, type, "gradient"));
  };
  pending.handle = place_of(x.tape()->record("share_rows_start", x.value(), {}, back));
  return pending;
}

Var share_rows_finish(const Pending& pending) {
  const Var& x = pending.handle;
  if (pending.group->size() == 1) return x;
  pending.work.wait();
  if (x.tape() == nullptr) return pending.y;
  const auto back = [x, group = pending.group, work = pending.backward](Tape& t, const Tensor& dy) {
    const Shape shape = with_rows(dy.shape(), dy.dim(0) / group->size());
    const Tensor dx = dy.like(shape, dy.dtype(), "gradient");
    *work = group->reduce_scatter_sum(dx, dy);
    t.give(x, dx);
  };
  Var y = x.tape()->record("share_rows_finish", pending.y, {}, back);
  if (pending.wide_grad) x.tape()->widen_grad(y);
  return y;
}

Tensor rows_of_all(const Tensor& x, Group& group) {
  Tensor all = x.like(with_rows(x.shape(), group.size() * x.dim(0)), x.dtype(), "rows of all");
  group.all_gather(all, x).wait();
  return all;
}

Pending sum_rows_start(const Var& x, Group& group, const Tensor& y) {
  AB_CHECK(x.shape().rank() > 0 && x.dim(0) == group.size() * y.dim(0) &&
               x.value().count() == group.size() * y.count(),
           "sum_rows over ", group.size(), " ranks of ", x.shape(), " into ", y.shape());
  Pending pending;
  pending.handle = place_of(x);
  pending.group = &group;
  const bool rounds = y.dtype() != x.dtype();
  pending.y = rounds ? x.value().like(y.shape(), x.dtype(), "sum_rows") : y;
  if (rounds) pending.rounded = y;
  pending.work = group.reduce_scatter_sum(pending.y, x.value());
  if (x.tape() == nullptr) return pending;
  pending.backward = std::make_shared<Work>();
  const auto back = [to = place_of(x), work = pending.backward](Tape& t, const Tensor& dx) {
    work->wait();
    t.give(to, dx);
  };
  pending.handle = place_of(x.tape()->record("sum_rows_start", pending.y, {}, back));
  return pending;
}

Var sum_rows_finish(const Pending& pending) {
  pending.work.wait();
  Tensor y = pending.y;
  if (!pending.rounded.empty()) {
    y = pending.rounded;
    convert(y, pending.y);
  }
  const Var& x = pending.handle;
  if (x.tape() == nullptr) return y;
  const auto back = [x, group = pending.group, work = pending.backward](Tape& t, const Tensor& dy) {
    const Shape shape = with_rows(dy.shape(), dy.dim(0) * group->size());
    const Tensor dx = dy.like(shape, dy.dtype(), "gradient");
    *work = group->all_gather(dx, dy);
    t.give(x, dx);
  };
  return x.tape()->record("sum_rows_finish", y, {}, back);
}

}  // namespace anabranch
