#include "core/ops/linear.h"

#include "core/base/build.h"
#include "core/ops/gemm.h"
#include "core/tensor/convert.h"

namespace anabranch {
namespace {

Shape check(const char* op, const Tensor& x, const Tensor& w, const Param* bias) {
  AB_CHECK(x.shape().rank() >= 2 && w.shape().rank() == 2 && x.dim(-1) == w.dim(1), "[", op,
           "] x is ", x.shape(), " but w ", w.shape(), ": their last axes must be equal");
  AB_CHECK(w.dtype() == x.dtype() || w.dtype() == accumulator_of(x.dtype()), "[", op, "] x is ",
           name_of(x.dtype()), " but w ", name_of(w.dtype()));
  if (bias != nullptr) {
    const DType type = bias->value.dtype();
    AB_CHECK(bias->value.count() == w.dim(0), "[", op, "] bias is ", bias->value.shape(),
             " but needs [", w.dim(0), "]");
    AB_CHECK(type == x.dtype() || type == accumulator_of(x.dtype()), "[", op, "] bias is ",
             name_of(type), " beside x of ", name_of(x.dtype()));
  }
  std::array<int64_t, Shape::kMaxRank> extents{};
  std::copy(x.shape().begin(), x.shape().end(), extents.begin());
  extents[static_cast<size_t>(x.shape().rank() - 1)] = w.dim(0);
  return {extents.begin(), extents.begin() + x.shape().rank()};
}

// The bias in the type that products are summed in.
Tensor for_product(const Tensor& bias) {
  return converted(bias, accumulator_of(bias.dtype()), "bias");
}

void forward(Tensor& y, const Tensor& x, const Tensor& w, const Param* bias) {
  if (bias == nullptr) return gemm(y, x, w, {.transpose_b = true});
  const Tensor wide = for_product(bias->value);
  gemm(y, x, w, {.transpose_b = true, .bias = &wide});
}

void gelu_forward(Tensor& y, Tensor& h, const Tensor& x, const Tensor& w, const Param& bias) {
  const Tensor wide = for_product(bias.value);
  if (x.device().is_cpu()) return cpu::linear_gelu_forward(y, h, x, w, wide);
  if constexpr (build::kCuda) return cuda::linear_gelu_forward(y, h, x, w, wide);
  AB_FAIL("[linear_gelu] no kernel for this device in this build");
}

void gelu_backward(Tensor& dh, GradSink& db, const Tensor& dy, const Tensor& h, const Param& bias) {
  const Tensor wide = for_product(bias.value);
  if (h.device().is_cpu()) return cpu::linear_gelu_backward(dh, db, dy, h, wide);
  if constexpr (build::kCuda) return cuda::linear_gelu_backward(dh, db, dy, h, wide);
  AB_FAIL("[linear_gelu] no kernel for this device in this build");
}

void backward(Tape& t, const Tensor& dy, const Var& x, Param& w, Param* bias) {
  if (t.wants(x) && x.dtype() == w.value.dtype()) {
    GradSink dx = t.grad(x);
    gemm(dx.out, dy, w.value, {.accumulate = dx.accumulate});
  } else if (t.wants(x)) {
    Tensor wide = dy.like(x.shape(), dy.dtype(), "gradient");
    gemm(wide, dy, w.value);
    t.give(x, converted(wide, x.dtype(), "gradient"));
  }
  GradSink dw = t.grad(w);
  const Tensor wide_x = converted(x.value(), w.value.dtype(), "linear.x");
  gemm(dw.out, dy, wide_x, {.transpose_a = true, .accumulate = dw.accumulate});
  if (bias != nullptr) {
    GradSink db = t.grad(*bias);
    bias_gradient(db, dy);
  }
}

}  // namespace

void bias_gradient(GradSink& db, const Tensor& dy) {
  if (dy.device().is_cpu()) return cpu::column_sums(db, dy);
  if constexpr (build::kCuda) return cuda::column_sums(db, dy);
  AB_FAIL("[linear] no kernel for this device in this build");
}

Var linear(const Var& x, Param& w, Param* bias) {
  const Shape shape = check("linear", x.value(), w.value, bias);
  Tensor y = x.value().like(shape, w.value.dtype(), "linear");
  const Tensor wide = converted(x.value(), w.value.dtype(), "linear.x");
  forward(y, wide, w.value, bias);
  if (x.tape() == nullptr) return y;
  std::vector<Param*> params{&w};
  if (bias != nullptr) params.push_back(bias);
  return x.tape()->record("linear", y, params, [x, &w, bias](Tape& t, const Tensor& dy) {
    backward(t, dy, x, w, bias);
  });
}

Var linear_wide(const Var& x, Param& w) {
  const Shape shape = check("linear_wide", x.value(), w.value, nullptr);
  AB_CHECK(x.dtype() == w.value.dtype(), "[linear_wide] x is ", name_of(x.dtype()), " but w ",
           name_of(w.value.dtype()));
  Tensor y = x.value().like(shape, accumulator_of(x.dtype()), "linear_wide");
  forward(y, x.value(), w.value, nullptr);
  if (x.tape() == nullptr) return y;
  return x.tape()->record("linear_wide", y, {&w}, [x, &w](Tape& t, const Tensor& dy) {
    backward(t, converted(dy, x.dtype(), "linear_wide.dy"), x, w, nullptr);
  });
}

Var linear_gelu(const Var& x, Param& w, Param& bias) {
  const Shape shape = check("linear_gelu", x.value(), w.value, &bias);
  AB_CHECK(x.dtype() == w.value.dtype(), "[linear_gelu] x is ", name_of(x.dtype()), " but w ",
           name_of(w.value.dtype()));
  Tensor y = x.value().like(shape, x.dtype(), "linear_gelu");
  Tensor h = x.value().like(shape, x.dtype(), "linear_gelu.product");
  gelu_forward(y, h, x.value(), w.value, bias);
  if (x.tape() == nullptr) return y;
  const auto run = [x, h, &w, &bias](Tape& t, std::span<Tensor> dys) {
    Tensor dh = dys[0].unique() ? dys[0] : dys[0].like("gradient");
    GradSink db = t.grad(bias);
    gelu_backward(dh, db, dys[0], h, bias);
    backward(t, dh, x, w, nullptr);
  };
  return x.tape()->record_many("linear_gelu", {y}, {&w, &bias}, run)[0];
}

}  // namespace anabranch
