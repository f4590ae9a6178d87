#include "core/ops/scalar_mix.h"

#include "core/ops/scale_gradient.h"
#include "core/tensor/element.h"

namespace anabranch {
namespace {

// dw_i (+)= <dy, x>, unless dy is empty.
void add_dot(GradSink& dw, int64_t i, const Tensor& dy, const Tensor& x) {
  const double kept = dw.accumulate ? element(dw.out, i) : 0;
  set_element(dw.out, kept + (dy.empty() ? 0 : cpu::dot(dy, x)), i);
}

void give_scaled(Tape& t, const Var& x, const Tensor& dy, double factor) {
  if (!t.wants(x)) return;
  Tensor dx = dy.like("gradient");
  cpu::scale(dx, dy, factor);
  t.give(x, dx);
}

}  // namespace

Var scalar_mix(const Var& x, Param& a, const Var& z, Param& b) {
  AB_CHECK(x.shape() == z.shape() && x.dtype() == z.dtype(), "[scalar_mix] tensors of ", x.shape(),
           " and ", z.shape());
  for (const Param* w : {&a, &b}) {
    AB_CHECK(w->value.count() == 1 && w->value.dtype() == accumulator_of(x.dtype()),
             "[scalar_mix] ", w->name, " is ", name_of(w->value.dtype()), w->value.shape());
  }
  AB_CHECK(x.value().device().is_cpu(), "[scalar_mix] no kernel for this device in this build");
  const Tensor terms[] = {x.value(), z.value()};
  const double weights[] = {element(a.value), element(b.value)};
  Tensor y = x.value().like("scalar_mix");
  cpu::weighted_sum(y, terms, cpu::weights_of(weights, y), 0, 1);
  Tape* tape = tape_of(x, z);
  if (tape == nullptr) return y;
  return tape->record("scalar_mix", y, {&a, &b}, [x, z, &a, &b](Tape& t, const Tensor& dy) {
    GradSink da = t.grad(a), db = t.grad(b);
    add_dot(da, 0, dy, x.value());
    add_dot(db, 0, dy, z.value());
    give_scaled(t, x, dy, element(a.value));
    give_scaled(t, z, dy, element(b.value));
  });
}

std::vector<Var> scalar_mix(std::span<const Var> xs, Param& p) {
  const auto J = std::ssize(xs);
  AB_CHECK(J > 0 && p.value.shape().rank() == 2 && p.value.dim(1) == J, "[scalar_mix] p is ",
           p.value.shape(), " for ", J, " tensors");
  AB_CHECK(p.value.dtype() == accumulator_of(xs[0].dtype()), "[scalar_mix] p is ",
           name_of(p.value.dtype()));
  AB_CHECK(xs[0].value().device().is_cpu(), "[scalar_mix] no kernel for this device in this build");
  const int64_t I = p.value.dim(0);
  std::vector<Tensor> values, ys;
  Tape* tape = nullptr;
  for (const Var& x : xs) {
    AB_CHECK(x.shape() == xs[0].shape() && x.dtype() == xs[0].dtype(), "[scalar_mix] tensors of ",
             xs[0].shape(), " and ", x.shape());
    values.push_back(x.value());
    if (tape == nullptr) tape = x.tape();
  }
  for (int64_t i = 0; i < I; ++i) {
    ys.push_back(values[0].like("scalar_mix"));
    cpu::weighted_sum(ys.back(), values, p.value, i * J, 1);
  }
  if (tape == nullptr) return {ys.begin(), ys.end()};
  const auto back = [inputs = std::vector<Var>(xs.begin(), xs.end()), values, &p, J](
                        Tape& t, std::span<Tensor> dys) {
    GradSink dp = t.grad(p);
    int64_t place = 0;
    for (const Tensor& dy : dys) {
      for (const Tensor& x : values) add_dot(dp, place++, dy, x);
    }
    for (Tensor& dy : dys) {
      if (!dy.empty()) continue;
      dy = values[0].like("gradient");
      dy.fill_zero();
    }
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (!t.wants(inputs[j])) continue;
      Tensor dx = values[j].like("gradient");
      cpu::weighted_sum(dx, dys, p.value, static_cast<int64_t>(j), J);
      t.give(inputs[j], dx);
    }
  };
  return tape->record_many("scalar_mix", ys, {&p}, back);
}

}  // namespace anabranch
