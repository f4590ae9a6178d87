#include "runtime/models/auxiliary.h"

#include "core/autograd/attach_loss.h"

namespace anabranch {

Var AuxiliaryLosses::attach(const Var& y, const Var& loss, double weight) const {
  const double part = weight * share;
  if (Measures* to = figures(y.tape())) to->add(0, loss.value(), part);
  return attach_loss(y, loss, part);
}

}  // namespace anabranch
