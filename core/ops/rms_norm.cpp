#include "core/ops/rms_norm.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void run(RmsNormForward& op) {
  if (op.x.device().is_cpu()) return cpu::rms_norm_forward(op);
  if constexpr (build::kCuda) return cuda::rms_norm_forward(op);
  AB_FAIL("[rms_norm] no kernel for this device in this build");
}

void run(RmsNormBackward& op) {
  if (op.x.device().is_cpu()) return cpu::rms_norm_backward(op);
  if constexpr (build::kCuda) return cuda::rms_norm_backward(op);
  AB_FAIL("[rms_norm] no kernel for this device in this build");
}

void check(const Var& x, const Param* w) {
  AB_CHECK(x.shape().rank() >= 1, "[rms_norm] x has no axis to normalise over");
  if (w == nullptr) return;
  const Shape want{x.dim(-1)};
  const DType type = accumulator_of(x.dtype());
  AB_CHECK(w->value.shape() == want && w->value.dtype() == type, "[rms_norm] ", w->name, " is ",
           name_of(w->value.dtype()), w->value.shape(), " but needs ", name_of(type), want);
}

// The forward of both ops; `delta` is empty for the first.
RmsNormForward forward(const Tensor& x, const Tensor& delta, const Param* w, double eps) {
  RmsNormForward op{x.like("rms_norm"), {}, {}, x, delta, {}, eps};
  if (w != nullptr) op.w = w->value;
  if (!delta.empty()) op.sum = x.like("residual");
  const int64_t rows = x.count() / std::max<int64_t>(x.dim(-1), 1);
  op.r = x.like({rows}, accumulator_of(x.dtype()), "rms_norm_r");
  run(op);
  return op;
}

std::vector<Param*> list(Param* w) {
  return w == nullptr ? std::vector<Param*>{} : std::vector<Param*>{w};
}

void backward(Tape& t, Param* w, RmsNormBackward op) {
  if (w != nullptr) {
    op.dw = t.grad(*w);
    op.w = w->value;
  }
  run(op);
}

Var norm(const Var& x, Param* w, double eps) {
  check(x, w);
  const RmsNormForward op = forward(x.value(), {}, w, eps);
  if (x.tape() == nullptr) return op.y;
  return x.tape()->record("rms_norm", op.y, list(w), [x, w, r = op.r](Tape& t, const Tensor& dy) {
    GradSink dx{};
    if (t.wants(x)) dx = t.grad(x);
    backward(t, w, {{}, dx.out, dx.accumulate ? dx.out : Tensor(), dy, x.value(), r, {}});
  });
}

AddRmsNorm add_norm(const Var& x, const Var& delta, Param* w, double eps) {
  check(x, w);
  AB_CHECK(x.shape() == delta.shape() && x.dtype() == delta.dtype(), "[add_rms_norm] x is ",
           name_of(x.dtype()), x.shape(), " but delta is ", name_of(delta.dtype()), delta.shape());
  const RmsNormForward op = forward(x.value(), delta.value(), w, eps);
  Tape* tape = tape_of(x, delta);
  if (tape == nullptr) return {op.sum, op.y};

  // The values of x and delta are not needed again: only their places on the tape are kept.
  const Var to_x({}, x.tape(), x.id()), to_delta({}, delta.tape(), delta.id());
  const auto outputs =
      tape->record_many("add_rms_norm", {op.sum, op.y}, list(w),
                        [=, sum = op.sum, r = op.r](Tape& t, std::span<Tensor> dys) {
                          Tensor dx = dys[0];
                          if (!dys[1].empty()) {
                            dx = {};
                            // The incoming gradient is written in place if it is nobody else's.
                            Tensor& into = dys[0].empty() ? dys[1] : dys[0];
                            const bool wanted = t.wants(to_x) || t.wants(to_delta);
                            if (wanted) dx = into.unique() ? into : sum.like("gradient");
                            backward(t, w, {{}, dx, dys[0], dys[1], sum, r, {}});
                          }
                          t.give(to_x, dx);
                          t.give(to_delta, dx);
                        });
  return {outputs[0], outputs[1]};
}

}  // namespace

Var rms_norm(const Var& x, Param& w, double eps) { return norm(x, &w, eps); }

Var rms_norm(const Var& x, double eps) { return norm(x, nullptr, eps); }

AddRmsNorm add_rms_norm(const Var& x, const Var& delta, Param& w, double eps) {
  return add_norm(x, delta, &w, eps);
}

AddRmsNorm add_rms_norm(const Var& x, const Var& delta, double eps) {
  return add_norm(x, delta, nullptr, eps);
}

}  // namespace anabranch
