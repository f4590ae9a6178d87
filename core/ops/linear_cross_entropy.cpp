#include "core/ops/linear_cross_entropy.h"

#include <cmath>
#include <numeric>

namespace anabranch {
namespace {

void check(const char* op, const Tensor& x, const Tensor& w, const Tensor& targets) {
  AB_CHECK(x.shape().rank() >= 2 && w.shape().rank() == 2 && x.dim(-1) == w.dim(1), "[", op,
           "] x is ", x.shape(), " but w ", w.shape(), ": their last axes must be equal");
  AB_CHECK(x.dtype() == w.dtype(), "[", op, "] x is ", name_of(x.dtype()), " but w ",
           name_of(w.dtype()));
  AB_CHECK(targets.count() * x.dim(-1) == x.count(), "[", op, "] ", targets.count(),
           " targets for x ", x.shape());
  AB_CHECK(x.device().is_cpu(), "[", op, "] no kernel for this device in this build");
  const auto* target = targets.data<int32_t>();
  for (int64_t n = 0; n < targets.count(); ++n) {
    if (target[n] < -1 || target[n] >= w.dim(0)) {
      throw data_error("[", op, "] the target of row ", n, " is ", target[n], " but must be 0 to ",
                       w.dim(0) - 1, ", or -1 for a row without a loss");
    }
  }
}

void check_softcap(const char* op, double softcap) {
  AB_CHECK(softcap >= 0 && std::isfinite(softcap), "[", op, "] softcap is ", softcap,
           " but must be positive, or 0 for none");
}

void check_seed(const Tensor& dy) {
  dispatch(dy.dtype(), [&]<class T>() {
    const auto seed = static_cast<double>(static_cast<Accumulator<T>>(*dy.data<T>()));
    AB_CHECK(seed == 1.0, "the gradient of the loss is ", seed,
             " but the gradients were made in the forward for 1: pass the factor as `scale`");
  });
}

}  // namespace

Var linear_cross_entropy(const Var& x, Param& w, const Tensor& targets, double scale,
                         double softcap) {
  check("linear_cross_entropy", x.value(), w.value, targets);
  check_softcap("linear_cross_entropy", softcap);
  Tape* tape = x.tape();
  std::vector<double> losses(static_cast<size_t>(targets.count()));
  Tensor dx;
  if (tape != nullptr && tape->mode() != Tape::Mode::kDry) {
    dx = x.value().like("linear_cross_entropy.dx");
    GradSink dw = tape->grad(w);
    const cpu::CrossEntropyGradients gradients{scale, &dx, &dw};
    cpu::linear_cross_entropy(losses, x.value(), w.value, targets, softcap, &gradients);
  } else {
    cpu::linear_cross_entropy(losses, x.value(), w.value, targets, softcap, nullptr);
  }
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0) * scale;
  Tensor y = x.value().like({1}, accumulator_of(x.dtype()), "loss");
  dispatch(y.dtype(), [&]<class T>() { *y.data<T>() = T(static_cast<Accumulator<T>>(sum)); });
  if (tape == nullptr) return y;
  return tape->record("linear_cross_entropy", y, {&w}, [x, dx](Tape& t, const Tensor& dy) {
    check_seed(dy);
    t.give(x, dx);
  });
}

void token_losses(Tensor& losses, const Tensor& x, const Param& w, const Tensor& targets,
                  double softcap) {
  check("token_losses", x, w.value, targets);
  check_softcap("token_losses", softcap);
  AB_CHECK(losses.count() == targets.count() && losses.dtype() == accumulator_of(x.dtype()),
           "[token_losses] losses is ", name_of(losses.dtype()), losses.shape(), " for ",
           targets.count(), " rows");
  std::vector<double> sums(static_cast<size_t>(targets.count()));
  cpu::linear_cross_entropy(sums, x, w.value, targets, softcap, nullptr);
  dispatch(losses.dtype(), [&]<class T>() {
    for (size_t n = 0; n < sums.size(); ++n) {
      losses.data<T>()[n] = T(static_cast<Accumulator<T>>(sums[n]));
    }
  });
}

void cap_logits(Tensor& logits, double softcap) {
  check_softcap("cap_logits", softcap);
  AB_CHECK(logits.device().is_cpu(), "[cap_logits] no kernel for this device in this build");
  if (softcap > 0) cpu::cap_logits(logits, softcap);
}

}  // namespace anabranch
