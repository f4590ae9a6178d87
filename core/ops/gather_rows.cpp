#include "core/ops/gather_rows.h"

namespace anabranch {

Var gather_rows(const Var& x, const Tensor& source) {
  AB_CHECK(x.shape().rank() == 2 && source.dtype() == DType::kI32, "[gather_rows] x is ", x.shape(),
           " and the sources are ", name_of(source.dtype()), " but need rows and int32");
  AB_CHECK(x.value().device().is_cpu(), "[gather_rows] no kernel for this device in this build");
  const int64_t rows = x.dim(0);
  const auto* row = source.data<int32_t>();
  for (int64_t s = 0; s < source.count(); ++s) {
    AB_CHECK(row[s] >= 0 && row[s] < rows, "[gather_rows] the source of slot ", s, " is ", row[s],
             " but x has ", rows, " rows");
  }
  Tensor y = x.value().like({source.count(), x.dim(1)}, x.dtype(), "gather_rows");
  cpu::gather_rows_forward(y, x.value(), source);
  if (x.tape() == nullptr) return y;
  const Var to({}, x.tape(), x.id());  // its value is not needed again
  return x.tape()->record("gather_rows", y, {}, [to, rows, source](Tape& t, const Tensor& dy) {
    GradSink dx{dy.like({rows, dy.dim(1)}, dy.dtype(), "gradient"), false};
    cpu::sum_slots(dx, std::span(&dy, 1), nullptr, cpu::slots_of_rows("gather_rows", source, rows));
    t.give(to, dx.out);
  });
}

}  // namespace anabranch
