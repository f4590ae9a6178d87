#include "runtime/models/auxiliary.h"

#include "core/autograd/attach_loss.h"
#include "core/tensor/element.h"

namespace anabranch {

Var AuxiliaryLosses::attach(const Var& y, const Var& loss, double weight) const {
  const double part = weight * share;
  if (Measures* to = figures(y.tape())) to->add(0, part * element(loss.value()));
  return attach_loss(y, loss, part);
}

}  // namespace anabranch
