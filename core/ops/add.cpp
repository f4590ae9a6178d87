#include "core/ops/add.h"

namespace anabranch {

Var add(const Var& x, const Var& y) {
  AB_CHECK(x.shape() == y.shape() && x.dtype() == y.dtype(), "[add] x is ", name_of(x.dtype()),
           x.shape(), " but y is ", name_of(y.dtype()), y.shape());
  Tensor z = x.value().like("add");
  AB_CHECK(z.device().is_cpu(), "[add] no kernel for this device in this build");
  cpu::add(z, x.value(), y.value());
  Tape* tape = tape_of(x, y);
  if (tape == nullptr) return z;
  // The values of x and y are not needed again: only their places on the tape are kept.
  const Var to_x({}, x.tape(), x.id()), to_y({}, y.tape(), y.id());
  return tape->record("add", z, {}, [to_x, to_y](Tape& t, const Tensor& dz) {
    t.give(to_x, dz);
    t.give(to_y, dz);
  });
}

}  // namespace anabranch
