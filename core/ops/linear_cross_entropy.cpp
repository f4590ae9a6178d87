#include "core/ops/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/build.h"
#include "core/tensor/convert.h"

namespace anabranch {
namespace {

void check(const char* op, const Tensor& x, const Tensor& w, const Tensor& targets) {
  AB_CHECK(x.shape().rank() >= 2 && w.shape().rank() == 2 && x.dim(-1) == w.dim(1), "[", op,
           "] x is ", x.shape(), " but w ", w.shape(), ": their last axes must be equal");
  AB_CHECK(x.dtype() == w.dtype(), "[", op, "] x is ", name_of(x.dtype()), " but w ",
           name_of(w.dtype()));
  AB_CHECK(targets.count() * x.dim(-1) == x.count(), "[", op, "] ", targets.count(),
           " targets for x ", x.shape());
  if (x.device().is_cuda()) return;
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
  if (dy.device().is_cuda()) return;
  dispatch(dy.dtype(), [&]<class T>() {
    const auto seed = static_cast<double>(static_cast<Accumulator<T>>(*dy.data<T>()));
    AB_CHECK(seed == 1.0, "the gradient of the loss is ", seed,
             " but the gradients were made in the forward for 1: pass the factor as `scale`");
  });
}

// The scaled sum of the losses of the rows.
Tensor sum_of_losses(const Tensor& x, const Tensor& w, const Tensor& targets, double scale,
                     double softcap, const CrossEntropyGradients* gradients) {
  Tensor y = x.like({1}, accumulator_of(x.dtype()), "loss");
  if (x.device().is_cpu()) {
    std::vector<double> losses(static_cast<size_t>(targets.count()));
    cpu::linear_cross_entropy(losses, x, w, targets, softcap, gradients);
    const double sum = std::accumulate(losses.begin(), losses.end(), 0.0) * scale;
    dispatch(y.dtype(), [&]<class T>() { *y.data<T>() = T(static_cast<Accumulator<T>>(sum)); });
    return y;
  }
  if constexpr (build::kCuda) {
    Tensor losses = x.like({targets.count()}, DType::kF64, "losses");
    cuda::linear_cross_entropy(losses, x, w, targets, softcap, gradients);
    cuda::loss_sum(y, losses, scale);
    return y;
  }
  AB_FAIL("[linear_cross_entropy] no kernel for this device in this build");
}

}  // namespace

Var linear_cross_entropy(const Var& x, Param& w, const Tensor& targets, double scale,
                         double softcap) {
  check("linear_cross_entropy", x.value(), w.value, targets);
  check_softcap("linear_cross_entropy", softcap);
  Tape* tape = x.tape();
  Tensor dx, y;
  if (tape != nullptr && tape->mode() != Tape::Mode::kDry) {
    dx = x.value().like("linear_cross_entropy.dx");
    GradSink dw = tape->grad(w);
    const CrossEntropyGradients gradients{scale, &dx, &dw};
    y = sum_of_losses(x.value(), w.value, targets, scale, softcap, &gradients);
  } else {
    y = sum_of_losses(x.value(), w.value, targets, scale, softcap, nullptr);
  }
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
  if (x.device().is_cuda()) {
    if constexpr (build::kCuda) {
      Tensor exact = losses.like(losses.shape(), DType::kF64, "losses");
      cuda::linear_cross_entropy(exact, x, w.value, targets, softcap, nullptr);
      return convert(losses, exact);
    }
  }
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
  if (softcap == 0) return;
  if (logits.device().is_cpu()) return cpu::cap_logits(logits, softcap);
  if constexpr (build::kCuda) return cuda::cap_logits(logits, softcap);
  AB_FAIL("[cap_logits] no kernel for this device in this build");
}

int64_t cuda::cross_entropy_rows(int64_t rows, int64_t vocabulary, DType sums) {
  constexpr int64_t kChunkBytes = int64_t{1} << 30U, kMinRows = 64, kMaxRows = 4096;
  return std::min(rows, std::clamp(kChunkBytes / (vocabulary * size_of(sums)), kMinRows, kMaxRows));
}

}  // namespace anabranch
