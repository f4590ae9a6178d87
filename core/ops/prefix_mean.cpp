#include "core/ops/prefix_mean.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& c, const Tensor& v, int64_t batch, const MeanForm& form,
             const Tensor& starts) {
  if (v.device().is_cpu()) return cpu::prefix_mean_forward(c, v, batch, form, starts);
  if constexpr (build::kCuda) return cuda::prefix_mean_forward(c, v, batch, form, starts);
  AB_FAIL("[prefix_mean] no kernel for this device in this build");
}

void backward(GradSink& dv, const Tensor& dc, int64_t batch, const MeanForm& form,
              const Tensor& starts) {
  if (dc.device().is_cpu()) return cpu::prefix_mean_backward(dv, dc, batch, form, starts);
  if constexpr (build::kCuda) return cuda::prefix_mean_backward(dv, dc, batch, form, starts);
  AB_FAIL("[prefix_mean] no kernel for this device in this build");
}

void step(Tensor& c, const Tensor& v, std::span<const int64_t> new_tokens, RunningMean& state,
          const MeanForm& form) {
  if (v.device().is_cpu()) return cpu::prefix_mean_step(c, v, new_tokens, state, form);
  if constexpr (build::kCuda) return cuda::prefix_mean_step(c, v, new_tokens, state, form);
  AB_FAIL("[prefix_mean] no kernel for this device in this build");
}

}  // namespace

Var prefix_mean(const Var& v, int64_t batch, const MeanForm& form, const Tensor& starts) {
  AB_CHECK(v.shape().rank() == 2 && batch > 0 && v.dim(0) % batch == 0, "[prefix_mean] v is ",
           v.shape(), " but needs [B*T, C] with B ", batch);
  AB_CHECK(starts.empty() || (starts.count() == v.dim(0) && starts.dtype() == DType::kI32 &&
                              form.kind != MeanForm::Kind::kGlobal),
           "[prefix_mean] starts is ", starts.shape(), " for v ", v.shape());
  Tensor c = v.value().like("prefix_mean");
  forward(c, v.value(), batch, form, starts);
  if (v.tape() == nullptr) return c;
  const auto back = [v, batch, form, starts](Tape& t, const Tensor& dc) {
    if (!t.wants(v)) return;
    GradSink dv = t.grad(v);
    backward(dv, dc, batch, form, starts);
  };
  return v.tape()->record("prefix_mean", c, {}, back);
}

RunningMean::RunningMean(const Tensor& beside, int64_t batch, int64_t width)
    : sums(beside.like({batch, width}, accumulator_of(beside.dtype()), "running mean")),
      counts(static_cast<size_t>(batch), 0) {
  sums.fill_zero();
}

Tensor prefix_mean_step(const Tensor& v, std::span<const int64_t> new_tokens, RunningMean& state,
                        const MeanForm& form) {
  const auto B = std::ssize(new_tokens);
  AB_CHECK(form.kind != MeanForm::Kind::kGlobal,
           "[prefix_mean] a global mean needs tokens that are not there yet");
  AB_CHECK(v.shape().rank() == 2 && v.dim(0) % B == 0 && state.sums.shape() == Shape({B, v.dim(1)}),
           "[prefix_mean] v is ", v.shape(), " beside a state of ", state.sums.shape());
  Tensor c = v.like("prefix_mean");
  step(c, v, new_tokens, state, form);
  return c;
}

}  // namespace anabranch
