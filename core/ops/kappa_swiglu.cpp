#include "core/ops/kappa_swiglu.h"

#include <optional>

#include "core/base/build.h"

namespace anabranch {
namespace {

constexpr const char* kOp = "kappa_swiglu";

void check_term(const Param* w, const Tensor& x, int64_t experts) {
  if (w == nullptr) return;
  AB_CHECK(w->value.shape() == (Shape{experts, x.dim(1) / 2}) &&
               w->value.dtype() == accumulator_of(x.dtype()),
           "[", kOp, "] ", w->name, " is ", name_of(w->value.dtype()), w->value.shape(),
           " but needs ", name_of(accumulator_of(x.dtype())), "[", experts, ", ", x.dim(1) / 2,
           "]");
}

void check(const Tensor& x, const Tensor& score, const Param* alpha, const Param* b,
           const Groups& groups, const Kappa& kappa) {
  AB_CHECK(x.shape().rank() == 2 && x.dim(1) % 2 == 0, "[", kOp, "] x is ", x.shape(),
           " but needs [rows, gate and up of equal width]");
  AB_CHECK(
      score.empty() || (score.count() == x.dim(0) && score.dtype() == accumulator_of(x.dtype())),
      "[", kOp, "] the scores are ", name_of(score.dtype()), score.shape(), " for ", x.dim(0),
      " rows of ", name_of(x.dtype()));
  check_groups(kOp, groups, groups.count(), x.dim(0));
  check_term(alpha, x, groups.count());
  check_term(b, x, groups.count());
  AB_CHECK(kappa.upper >= 1 && kappa.upper <= 8, "[", kOp, "] U is ", kappa.upper,
           " but must be 1 to 8");
}

void forward(Tensor& h, const KappaInputs& in) {
  if (h.device().is_cpu()) return cpu::kappa_swiglu_forward(h, in);
  if constexpr (build::kCuda) return cuda::kappa_swiglu_forward(h, in);
  AB_FAIL("[", kOp, "] no kernel for this device in this build");
}

void backward(const KappaSinks& out, const Tensor& dh, const KappaInputs& in) {
  if (dh.device().is_cpu()) return cpu::kappa_swiglu_backward(out, dh, in);
  if constexpr (build::kCuda) return cuda::kappa_swiglu_backward(out, dh, in);
  AB_FAIL("[", kOp, "] no kernel for this device in this build");
}

const Tensor* value_of(const Param* w) { return w != nullptr ? &w->value : nullptr; }

}  // namespace

Var kappa_swiglu(const Var& x, const Var& score, Param* alpha, Param* b, const Groups& groups,
                 const Kappa& kappa) {
  check(x.value(), score.value(), alpha, b, groups, kappa);
  const bool scored = !score.value().empty() && alpha != nullptr;
  if (!scored) alpha = nullptr;
  const auto inputs = [=](const Tensor& rows, const Tensor& scores, const Groups& sorted) {
    return KappaInputs{rows, scored ? &scores : nullptr, value_of(alpha), value_of(b), sorted,
                       kappa};
  };
  Tensor h = x.value().like({x.dim(0), x.dim(1) / 2}, x.dtype(), kOp);
  forward(h, inputs(x.value(), score.value(), groups));
  Tape* tape = tape_of(x, score);
  if (tape == nullptr) return h;
  std::vector<Param*> params;
  for (Param* w : {alpha, b}) {
    if (w != nullptr) params.push_back(w);
  }
  const auto back = [=](Tape& t, const Tensor& dh) {
    std::optional<GradSink> dx, dscore, dalpha, db;
    if (t.wants(x)) dx = t.grad(x);
    if (scored && t.wants(score)) dscore = t.grad(score);
    if (alpha != nullptr) dalpha = t.grad(*alpha);
    if (b != nullptr) db = t.grad(*b);
    const auto sink = [](std::optional<GradSink>& to) { return to ? &*to : nullptr; };
    backward({sink(dx), sink(dscore), sink(dalpha), sink(db)}, dh,
             inputs(x.value(), score.value(), groups));
  };
  return tape->record(kOp, h, params, back);
}

}  // namespace anabranch
