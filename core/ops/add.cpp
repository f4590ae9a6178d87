#include "core/ops/add.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void sum(Tensor& z, const Tensor& x, const Tensor& y) {
  if (z.device().is_cpu()) return cpu::add(z, x, y);
  if constexpr (build::kCuda) return cuda::add(z, x, y);
  AB_FAIL("[add] no kernel for this device in this build");
}

}  // namespace

Var add(const Var& x, const Var& y) {
  AB_CHECK(x.shape() == y.shape() && x.dtype() == y.dtype(), "[add] x is ", name_of(x.dtype()),
           x.shape(), " but y is ", name_of(y.dtype()), y.shape());
  Tensor z = x.value().like("add");
  sum(z, x.value(), y.value());
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
