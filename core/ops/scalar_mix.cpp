#include "core/ops/scalar_mix.h"

namespace anabranch {
namespace {

// dP_ij (+)= <dy_i, x_j>
void weight_gradients(Param& p, std::span<const Tensor> dys, std::span<const Tensor> xs) {
  GradSink dp = Tape::grad(p);
  dispatch(dp.out.dtype(), [&]<class T>() {
    T* to = dp.out.data<T>();
    for (const Tensor& dy : dys) {
      for (const Tensor& x : xs) {
        const double dot = dy.empty() ? 0 : cpu::dot(dy, x);
        const double kept =
            dp.accumulate ? static_cast<double>(static_cast<Accumulator<T>>(*to)) : 0;
        *to++ = T(static_cast<Accumulator<T>>(kept + dot));
      }
    }
  });
}

double only(const Tensor& t) {
  return t.dtype() == DType::kF64 ? *t.data<double>() : *t.data<float>();
}

// da (+)= <dy, x>
void add_dot(Param& a, const Tensor& dy, const Tensor& x) {
  GradSink da = Tape::grad(a);
  const double sum = cpu::dot(dy, x) + (da.accumulate ? only(da.out) : 0);
  dispatch(da.out.dtype(),
           [&]<class T>() { *da.out.data<T>() = T(static_cast<Accumulator<T>>(sum)); });
}

void give_scaled(Tape& t, const Var& x, const Tensor& dy, double factor) {
  if (!t.wants(x)) return;
  Tensor dx = dy.like("gradient");
  cpu::weighted_sum(dx, {&dy, 1}, cpu::weights_of({&factor, 1}, dy), 0, 1);
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
  const double weights[] = {only(a.value), only(b.value)};
  Tensor y = x.value().like("scalar_mix");
  cpu::weighted_sum(y, terms, cpu::weights_of(weights, y), 0, 1);
  Tape* tape = tape_of(x, z);
  if (tape == nullptr) return y;
  return tape->record("scalar_mix", y, {&a, &b}, [x, z, &a, &b](Tape& t, const Tensor& dy) {
    add_dot(a, dy, x.value());
    add_dot(b, dy, z.value());
    give_scaled(t, x, dy, only(a.value));
    give_scaled(t, z, dy, only(b.value));
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
    weight_gradients(p, dys, values);
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
