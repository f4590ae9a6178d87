#include "core/ops/altup_correct.h"

#include <utility>

#include "core/base/build.h"

namespace anabranch {
namespace {

void run(AltupForward& op) {
  if (op.computed.device().is_cpu()) return cpu::altup_correct_forward(op);
  if constexpr (build::kCuda) return cuda::altup_correct_forward(op);
  AB_FAIL("[altup_correct] no kernel for this device in this build");
}

void run(AltupBackward& op) {
  if (op.difference.device().is_cpu()) return cpu::altup_correct_backward(op);
  if constexpr (build::kCuda) return cuda::altup_correct_backward(op);
  AB_FAIL("[altup_correct] no kernel for this device in this build");
}

}  // namespace

std::vector<Var> altup_correct(std::span<const Var> predicted, const Var& computed, int64_t active,
                               Param& g) {
  const auto K = std::ssize(predicted);
  AB_CHECK(active >= 0 && active < K && g.value.count() == K, "[altup_correct] block ", active,
           " of ", K, " with g ", g.value.shape());
  AB_CHECK(g.value.dtype() == accumulator_of(computed.dtype()), "[altup_correct] g is ",
           name_of(g.value.dtype()));
  const Tensor& xt = computed.value();
  AltupForward op{{}, xt.like("altup difference"), {}, xt, g.value, active};
  for (const Var& xh : predicted) {
    AB_CHECK(xh.shape() == xt.shape() && xh.dtype() == xt.dtype(),
             "[altup_correct] a predicted block is ", xh.shape(), ", the computed ", xt.shape());
    op.predicted.push_back(xh.value());
    op.corrected.push_back(xt.like("altup_correct"));
  }
  run(op);
  Tape* tape = tape_of(computed, predicted[0]);
  if (tape == nullptr) return {op.corrected.begin(), op.corrected.end()};
  const auto back = [inputs = std::vector<Var>(predicted.begin(), predicted.end()), computed,
                     active, &g, difference = op.difference](Tape& t, std::span<Tensor> dys) {
    Tensor dxt = difference.like("gradient"), dxa = difference.like("gradient");
    AltupBackward down{t.grad(g), dxt, dxa, dys, difference, g.value, active};
    run(down);
    for (size_t i = 0; i < dys.size(); ++i) {
      if (std::cmp_equal(i, active)) {
        t.give(inputs[i], dxa);
      } else if (!dys[i].empty()) {
        t.give(inputs[i], dys[i]);
      }
    }
    t.give(computed, dxt);
  };
  return tape->record_many("altup_correct", op.corrected, {&g}, back);
}

}  // namespace anabranch
