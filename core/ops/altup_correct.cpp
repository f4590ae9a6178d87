#include "core/ops/altup_correct.h"

#include "core/ops/scalar_mix.h"
#include "core/ops/scale_gradient.h"
#include "core/tensor/element.h"

namespace anabranch {
namespace {

void backward(Tape& t, std::span<Tensor> dys, std::span<const Var> predicted, const Var& computed,
              int64_t active, Param& g, const Tensor& difference) {
  GradSink dg = t.grad(g);
  for (size_t i = 0; i < dys.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const double kept = dg.accumulate ? element(dg.out, at) : 0;
    set_element(dg.out, kept + (dys[i].empty() ? 0 : cpu::dot(dys[i], difference)), at);
    if (!dys[i].empty()) {
      t.give(predicted[i], dys[i]);
      continue;
    }
    dys[i] = difference.like("gradient");
    dys[i].fill_zero();
  }
  Tensor dxt = difference.like("gradient"), minus = difference.like("gradient");
  cpu::weighted_sum(dxt, dys, g.value, 0, 1);
  cpu::scale(minus, dxt, -1);
  t.give(predicted[static_cast<size_t>(active)], minus);
  t.give(computed, dxt);
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
  AB_CHECK(xt.device().is_cpu(), "[altup_correct] no kernel for this device in this build");
  Tensor difference = xt.like("altup difference");
  cpu::add_scaled(difference, xt, -1, predicted[static_cast<size_t>(active)].value());
  std::vector<Tensor> ys;
  for (int64_t i = 0; i < K; ++i) {
    const Var& xh = predicted[static_cast<size_t>(i)];
    AB_CHECK(xh.shape() == xt.shape() && xh.dtype() == xt.dtype(),
             "[altup_correct] a predicted block is ", xh.shape(), ", the computed ", xt.shape());
    ys.push_back(xt.like("altup_correct"));
    cpu::add_scaled(ys.back(), xh.value(), element(g.value, i), difference);
  }
  Tape* tape = tape_of(computed, predicted[0]);
  if (tape == nullptr) return {ys.begin(), ys.end()};
  const auto back = [inputs = std::vector<Var>(predicted.begin(), predicted.end()), computed,
                     active, &g, difference](Tape& t, std::span<Tensor> dys) {
    backward(t, dys, inputs, computed, active, g, difference);
  };
  return tape->record_many("altup_correct", ys, {&g}, back);
}

}  // namespace anabranch
