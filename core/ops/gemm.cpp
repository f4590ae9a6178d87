#include "core/ops/gemm.h"

#include <utility>

namespace anabranch {
namespace {

// Rows and columns of a tensor seen as a matrix.
std::pair<int64_t, int64_t> matrix(const Tensor& t) {
  AB_CHECK(t.shape().rank() >= 2, "[gemm] needs matrices but got ", t.shape());
  const int64_t columns = t.dim(-1);
  return {columns == 0 ? 0 : t.count() / columns, columns};
}

}  // namespace

void gemm(Tensor& c, const Tensor& a, const Tensor& b, const Gemm& how) {
  auto [m, k] = matrix(a);
  if (how.transpose_a) std::swap(m, k);
  auto [k_of_b, n] = matrix(b);
  if (how.transpose_b) std::swap(k_of_b, n);
  AB_CHECK(k == k_of_b && matrix(c) == std::make_pair(m, n), "[gemm] c is ", c.shape(), ", a ",
           a.shape(), how.transpose_a ? " transposed" : "", ", b ", b.shape(),
           how.transpose_b ? " transposed" : "");
  const DType sum_type = accumulator_of(a.dtype());
  AB_CHECK(a.dtype() == b.dtype() && (c.dtype() == a.dtype() || c.dtype() == sum_type),
           "[gemm] c is ", name_of(c.dtype()), ", a ", name_of(a.dtype()), ", b ",
           name_of(b.dtype()));
  AB_CHECK(how.bias == nullptr || (how.bias->count() == n && how.bias->dtype() == sum_type),
           "[gemm] bias must be ", name_of(sum_type), "[", n, "]");
  AB_CHECK(a.device().is_cpu(), "[gemm] no kernel for this device in this build");

  const cpu::GemmShape s{m, n, k, how.transpose_a, how.transpose_b, how.accumulate};
  dispatch(a.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const cpu::GemmEnd<A> end{how.bias != nullptr ? how.bias->data<A>() : nullptr, how.after,
                              a.pool()};
    if (c.dtype() == a.dtype()) {
      cpu::gemm<T, T>(c.data<T>(), a.data<T>(), b.data<T>(), s, end);
    } else {
      cpu::gemm<T, A>(c.data<A>(), a.data<T>(), b.data<T>(), s, end);
    }
  });
}

}  // namespace anabranch
