#include "core/ops/altup_correct.h"

#include "core/ops/scalar_mix.h"

namespace anabranch {
namespace {

double element(const Tensor& t, int64_t i) {
  double value = 0;
  dispatch(t.dtype(), [&]<class T>() {
    value = static_cast<double>(static_cast<Accumulator<T>>(t.data<T>()[i]));
  });
  return value;
}

void backward(Tape& t, std::span<Tensor> dys, std::span<const Var> predicted, const Var& computed,
              int64_t active, Param& g, const Tensor& difference) {
  GradSink dg = Tape::grad(g);
  Tensor dxt = difference.like("gradient");
  dxt.fill_zero();
  for (size_t i = 0; i < dys.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (!dys[i].empty()) {
      const Tensor before = dxt.clone("gradient");
      cpu::add_scaled(dxt, before, element(g.value, at), dys[i]);
      t.give(predicted[i], dys[i]);
    }
    const double dot = dys[i].empty() ? 0 : cpu::dot(dys[i], difference);
    const double kept = dg.accumulate ? element(dg.out, at) : 0;
    dispatch(dg.out.dtype(),
             [&]<class T>() { dg.out.data<T>()[at] = T(static_cast<Accumulator<T>>(kept + dot)); });
  }
  Tensor minus = dxt.like("gradient");
  Tensor zero = dxt.like("gradient");
  zero.fill_zero();
  cpu::add_scaled(minus, zero, -1, dxt);
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
