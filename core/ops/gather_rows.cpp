#include "core/ops/gather_rows.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void forward(Tensor& y, const Tensor& x, const Tensor& source) {
  if (x.device().is_cpu()) return cpu::gather_rows_forward(y, x, source);
  if constexpr (build::kCuda) return cuda::gather_rows_forward(y, x, source);
  AB_FAIL("[gather_rows] no kernel for this device in this build");
}

void backward(GradSink& dx, const Tensor& dy, const Tensor& source) {
  const int64_t rows = dx.out.dim(0);
  const std::span<const Tensor> all(&dy, 1);
  if (dy.device().is_cpu()) {
    return cpu::sum_slots(dx, all, nullptr, cpu::slots_of_rows("gather_rows", source, rows));
  }
  if constexpr (build::kCuda) {
    return cuda::sum_slots(dx, all, nullptr, cuda::slots_of_rows(source, rows));
  }
  AB_FAIL("[gather_rows] no kernel for this device in this build");
}

void check_sources(const Tensor& source, int64_t rows) {
  const auto* row = source.data<int32_t>();
  for (int64_t s = 0; s < source.count(); ++s) {
    AB_CHECK(row[s] >= 0 && row[s] < rows, "[gather_rows] the source of slot ", s, " is ", row[s],
             " but x has ", rows, " rows");
  }
}

}  // namespace

Var gather_rows(const Var& x, const Tensor& source) {
  AB_CHECK(x.shape().rank() == 2 && source.dtype() == DType::kI32, "[gather_rows] x is ", x.shape(),
           " and the sources are ", name_of(source.dtype()), " but need rows and int32");
  const int64_t rows = x.dim(0);
  if (x.value().device().is_cpu()) check_sources(source, rows);
  Tensor y = x.value().like({source.count(), x.dim(1)}, x.dtype(), "gather_rows");
  forward(y, x.value(), source);
  if (x.tape() == nullptr) return y;
  const Var to({}, x.tape(), x.id());  // its value is not needed again
  return x.tape()->record("gather_rows", y, {}, [to, rows, source](Tape& t, const Tensor& dy) {
    GradSink dx{dy.like({rows, dy.dim(1)}, dy.dtype(), "gradient"), false};
    backward(dx, dy, source);
    t.give(to, dx.out);
  });
}

}  // namespace anabranch
