#include "core/ops/prefix_rows.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void put(Tensor& to, const Tensor& qkv, const Tensor& keys, const Tensor& values,
         int64_t sequences) {
  if (to.device().is_cpu()) return cpu::with_prefix(to, qkv, keys, values, sequences);
  if constexpr (build::kCuda) return cuda::with_prefix(to, qkv, keys, values, sequences);
  AB_FAIL("[with_prefix] no kernel for this device in this build");
}

void gradients(GradSink& dkeys, GradSink& dvalues, const Tensor& dy, int64_t sequences) {
  if (dy.device().is_cpu()) return cpu::prefix_gradients(dkeys, dvalues, dy, sequences);
  if constexpr (build::kCuda) return cuda::prefix_gradients(dkeys, dvalues, dy, sequences);
  AB_FAIL("[with_prefix] no kernel for this device in this build");
}

void copy_own_rows(Tensor& to, const Tensor& from, int64_t sequences, int64_t prefix) {
  if (to.device().is_cpu()) return cpu::copy_own_rows(to, from, sequences, prefix);
  if constexpr (build::kCuda) return cuda::copy_own_rows(to, from, sequences, prefix);
  AB_FAIL("[without_prefix] no kernel for this device in this build");
}

}  // namespace

Var with_prefix(const Var& qkv, Param& keys, Param& values, int64_t sequences) {
  const Tensor &k = keys.value, &v = values.value;
  AB_CHECK(k.shape().rank() == 3 && v.shape() == k.shape() && k.dtype() == qkv.dtype() &&
               v.dtype() == qkv.dtype(),
           "[with_prefix] keys are ", name_of(k.dtype()), k.shape(), ", values ",
           name_of(v.dtype()), v.shape(), " beside qkv of ", name_of(qkv.dtype()));
  AB_CHECK(qkv.shape().rank() == 2 && qkv.dim(1) == 3 * k.dim(2) && sequences > 0 &&
               qkv.dim(0) % sequences == 0 && sequences % k.dim(0) == 0,
           "[with_prefix] qkv is ", qkv.shape(), " for ", sequences, " sequences and keys ",
           k.shape());
  const int64_t n = k.dim(1), rows = qkv.dim(0) + sequences * n;
  Tensor y = qkv.value().like({rows, qkv.dim(1)}, qkv.dtype(), "with_prefix");
  put(y, qkv.value(), k, v, sequences);
  if (qkv.tape() == nullptr) return y;
  const auto back = [qkv, &keys, &values, sequences, n](Tape& t, const Tensor& dy) {
    if (t.wants(qkv)) {
      Tensor dx = dy.like(qkv.shape(), dy.dtype(), "gradient");
      copy_own_rows(dx, dy, sequences, n);
      t.give(qkv, dx);
    }
    GradSink dk = t.grad(keys), dv = t.grad(values);
    gradients(dk, dv, dy, sequences);
  };
  return qkv.tape()->record("with_prefix", y, {&keys, &values}, back);
}

Tensor prefix_rows(const Tensor& keys, const Tensor& values, int64_t sequences) {
  AB_CHECK(keys.shape().rank() == 3 && values.shape() == keys.shape() &&
               values.dtype() == keys.dtype() && sequences > 0 && sequences % keys.dim(0) == 0,
           "[prefix_rows] keys are ", name_of(keys.dtype()), keys.shape(), ", values ",
           name_of(values.dtype()), values.shape(), " for ", sequences, " sequences");
  const int64_t width = 3 * keys.dim(2);
  const Tensor none = keys.like({0, width}, keys.dtype(), "prefix");
  Tensor rows = keys.like({sequences * keys.dim(1), width}, keys.dtype(), "prefix");
  put(rows, none, keys, values, sequences);
  return rows;
}

Var without_prefix(const Var& y, int64_t sequences, int64_t prefix) {
  AB_CHECK(y.shape().rank() == 2 && sequences > 0 && y.dim(0) % sequences == 0 &&
               y.dim(0) / sequences >= prefix,
           "[without_prefix] y is ", y.shape(), " for ", sequences, " sequences behind ", prefix);
  Tensor x = y.value().like({y.dim(0) - sequences * prefix, y.dim(1)}, y.dtype(), "without_prefix");
  copy_own_rows(x, y.value(), sequences, prefix);
  if (y.tape() == nullptr) return x;
  return y.tape()->record("without_prefix", x, {},
                          [y, sequences, prefix](Tape& t, const Tensor& dx) {
                            if (!t.wants(y)) return;
                            Tensor dy = y.value().like("gradient");
                            copy_own_rows(dy, dx, sequences, prefix);
                            t.give(y, dy);
                          });
}

}  // namespace anabranch
