#include "core/ops/scalar_mix.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void mix(std::span<Tensor> ys, std::span<const Tensor> xs, std::span<const Tensor> weights) {
  if (xs[0].device().is_cpu()) return cpu::mix(ys, xs, weights);
  if constexpr (build::kCuda) return cuda::mix(ys, xs, weights);
  AB_FAIL("[scalar_mix] no kernel for this device in this build");
}

void add_dots(std::span<GradSink> dws, std::span<const Tensor> dys, std::span<const Tensor> xs) {
  if (xs[0].device().is_cpu()) return cpu::add_dots(dws, dys, xs);
  if constexpr (build::kCuda) return cuda::add_dots(dws, dys, xs);
  AB_FAIL("[scalar_mix] no kernel for this device in this build");
}

// Each element of t as a tensor.
std::vector<Tensor> elements(const Tensor& t) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < t.count(); ++i) all.push_back(t.view(i, {1}));
  return all;
}

void give_scaled(Tape& t, const Var& x, const Tensor& dy, const Tensor& factor) {
  if (!t.wants(x)) return;
  Tensor dx = dy.like("gradient");
  mix({&dx, 1}, {&dy, 1}, {&factor, 1});
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
  const Tensor terms[] = {x.value(), z.value()}, weights[] = {a.value, b.value};
  Tensor y = x.value().like("scalar_mix");
  mix({&y, 1}, terms, weights);
  Tape* tape = tape_of(x, z);
  if (tape == nullptr) return y;
  return tape->record("scalar_mix", y, {&a, &b}, [x, z, &a, &b](Tape& t, const Tensor& dy) {
    const Tensor inputs[] = {x.value(), z.value()};
    if (&a == &b) {  // one parameter: the second of its sums adds to the first
      for (const Tensor& input : inputs) {
        GradSink da = t.grad(a);
        add_dots({&da, 1}, {&dy, 1}, {&input, 1});
      }
    } else {
      GradSink sinks[] = {t.grad(a), t.grad(b)};
      add_dots(sinks, {&dy, 1}, inputs);
    }
    give_scaled(t, x, dy, a.value);
    give_scaled(t, z, dy, b.value);
  });
}

std::vector<Var> scalar_mix(std::span<const Var> xs, Param& p) {
  const auto J = std::ssize(xs);
  AB_CHECK(J > 0 && p.value.shape().rank() == 2 && p.value.dim(1) == J, "[scalar_mix] p is ",
           p.value.shape(), " for ", J, " tensors");
  AB_CHECK(p.value.dtype() == accumulator_of(xs[0].dtype()), "[scalar_mix] p is ",
           name_of(p.value.dtype()));
  const int64_t I = p.value.dim(0);
  std::vector<Tensor> values, ys;
  Tape* tape = nullptr;
  for (const Var& x : xs) {
    AB_CHECK(x.shape() == xs[0].shape() && x.dtype() == xs[0].dtype(), "[scalar_mix] tensors of ",
             xs[0].shape(), " and ", x.shape());
    values.push_back(x.value());
    if (tape == nullptr) tape = x.tape();
  }
  for (int64_t i = 0; i < I; ++i) ys.push_back(values[0].like("scalar_mix"));
  mix(ys, values, elements(p.value));
  if (tape == nullptr) return {ys.begin(), ys.end()};
  const auto back = [inputs = std::vector<Var>(xs.begin(), xs.end()), values, &p, J](
                        Tape& t, std::span<Tensor> dys) {
    const GradSink dp = t.grad(p);
    std::vector<GradSink> sinks;
    for (const Tensor& to : elements(dp.out)) sinks.push_back({to, dp.accumulate});
    add_dots(sinks, dys, values);

    std::vector<Tensor> used, dxs, weights;  // weights: [dxs, used]
    for (const Tensor& dy : dys) {
      if (!dy.empty()) used.push_back(dy);
    }
    for (int64_t j = 0; j < J; ++j) {
      if (!t.wants(inputs[static_cast<size_t>(j)])) continue;
      dxs.push_back(values[0].like("gradient"));
      for (size_t i = 0; i < dys.size(); ++i) {
        if (!dys[i].empty()) weights.push_back(p.value.view(static_cast<int64_t>(i) * J + j, {1}));
      }
    }
    mix(dxs, used, weights);
    size_t next = 0;
    for (const Var& x : inputs) {
      if (t.wants(x)) t.give(x, dxs[next++]);
    }
  };
  return tape->record_many("scalar_mix", ys, {&p}, back);
}

}  // namespace anabranch
