#include "core/ops/layer_norm.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void run(LayerNormForward& op) {
  if (op.x.device().is_cpu()) return cpu::layer_norm_forward(op);
  if constexpr (build::kCuda) return cuda::layer_norm_forward(op);
  AB_FAIL("[layer_norm] no kernel for this device in this build");
}

void run(LayerNormBackward& op) {
  if (op.x.device().is_cpu()) return cpu::layer_norm_backward(op);
  if constexpr (build::kCuda) return cuda::layer_norm_backward(op);
  AB_FAIL("[layer_norm] no kernel for this device in this build");
}

void check(const Var& x, const Param& w, const Param& b) {
  AB_CHECK(x.shape().rank() >= 1, "[layer_norm] x has no axis to normalise over");
  const Shape want{x.dim(-1)};
  const DType type = accumulator_of(x.dtype());
  for (const Param* p : {&w, &b}) {
    AB_CHECK(p->value.shape() == want && p->value.dtype() == type, "[layer_norm] ", p->name, " is ",
             name_of(p->value.dtype()), p->value.shape(), " but needs ", name_of(type), want);
  }
}

// The forward of both ops; `delta` is empty for the first.
LayerNormForward forward(const Tensor& x, const Tensor& delta, const Param& w, const Param& b,
                         double eps) {
  LayerNormForward op{x.like("layer_norm"), {}, {}, x, delta, w.value, b.value, eps};
  if (!delta.empty()) op.sum = x.like("residual");
  const int64_t rows = x.count() / std::max<int64_t>(x.dim(-1), 1);
  op.stats = x.like({rows, 2}, accumulator_of(x.dtype()), "layer_norm_stats");
  run(op);
  return op;
}

}  // namespace

Var layer_norm(const Var& x, Param& w, Param& b, double eps) {
  check(x, w, b);
  const LayerNormForward op = forward(x.value(), {}, w, b, eps);
  if (x.tape() == nullptr) return op.y;
  return x.tape()->record(
      "layer_norm", op.y, {&w, &b}, [x, stats = op.stats, &w, &b](Tape& t, const Tensor& dy) {
        LayerNormBackward back{t.grad(w), t.grad(b), {}, {}, dy, x.value(), stats, w.value};
        if (t.wants(x)) {
          const GradSink dx = t.grad(x);
          back.dx = dx.out;
          if (dx.accumulate) back.residual = dx.out;
        }
        run(back);
      });
}

AddNorm add_layer_norm(const Var& x, const Var& delta, Param& w, Param& b, double eps) {
  check(x, w, b);
  AB_CHECK(x.shape() == delta.shape() && x.dtype() == delta.dtype(), "[add_layer_norm] x is ",
           name_of(x.dtype()), x.shape(), " but delta is ", name_of(delta.dtype()), delta.shape());
  const LayerNormForward op = forward(x.value(), delta.value(), w, b, eps);
  Tape* tape = tape_of(x, delta);
  if (tape == nullptr) return {op.sum, op.y};

  // The values of x and delta are not needed again: only their places on the tape are kept.
  const Var to_x({}, x.tape(), x.id()), to_delta({}, delta.tape(), delta.id());
  const auto outputs = tape->record_many(
      "add_layer_norm", {op.sum, op.y}, {&w, &b},
      [=, sum = op.sum, stats = op.stats, &w, &b](Tape& t, std::span<Tensor> dys) {
        Tensor dx = dys[0];
        if (!dys[1].empty()) {
          dx = {};
          // The incoming gradient is written in place if it is nobody else's.
          Tensor& into = dys[0].empty() ? dys[1] : dys[0];
          const bool wanted = t.wants(to_x) || t.wants(to_delta);
          if (wanted) dx = into.unique() ? into : sum.like("gradient");
          LayerNormBackward back{t.grad(w), t.grad(b), dx, dys[0], dys[1], sum, stats, w.value};
          run(back);
        }
        t.give(to_x, dx);
        t.give(to_delta, dx);
      });
  return {outputs[0], outputs[1]};
}

}  // namespace anabranch
