#include "core/autograd/recompute.h"

namespace anabranch {

Var recompute(const Var& x, const std::function<Var(const Var&)>& f) {
  Tape* outer = x.tape();
  if (outer == nullptr) return f(x);

  Tape dry(Tape::Mode::kDry, outer->trace());
  dry.set_lane(outer->lane());
  const Tensor y = f(dry.input(x.value())).value();

  return outer->record("recompute", y, dry.params_used(), [x, f](Tape& tape, const Tensor& dy) {
    Tape inner(Tape::Mode::kRecompute, tape.trace());
    inner.set_lane(tape.lane());
    const Var again = inner.input(x.value());
    inner.backward(f(again), dy);
    tape.give(x, inner.take_grad(again));
  });
}

}  // namespace anabranch
