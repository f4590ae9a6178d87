#include "core/autograd/attach_loss.h"

#include "core/tensor/element.h"

namespace anabranch {

Var attach_loss(const Var& x, const Var& loss, double scale) {
  AB_CHECK(loss.value().count() == 1, "[attach_loss] the loss is ", loss.shape(), ", not a scalar");
  Tape* tape = x.tape();
  if (tape == nullptr) return x;
  return tape->record("attach_loss", x.value(), {}, [x, loss, scale](Tape& t, const Tensor& dy) {
    t.give(x, dy);
    Tensor seed = loss.value().like("seed");
    set_element(seed, scale);
    t.give(loss, seed);
  });
}

}  // namespace anabranch
