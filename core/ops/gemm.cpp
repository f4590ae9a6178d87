#include "core/ops/gemm.h"

#include <utility>

#include "core/base/build.h"

namespace anabranch {
namespace {

// Rows and columns of a tensor seen as a matrix.
std::pair<int64_t, int64_t> matrix(const Tensor& t) {
  AB_CHECK(t.shape().rank() >= 2, "[gemm] needs matrices but got ", t.shape());
  const int64_t columns = t.dim(-1);
  return {columns == 0 ? 0 : t.count() / columns, columns};
}

void run_on_cpu(Tensor& c, const Tensor& a, const Tensor& b, const cpu::GemmShape& s,
                const Gemm& how) {
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
  if (a.device().is_cpu()) {
    return run_on_cpu(c, a, b, {m, n, k, how.transpose_a, how.transpose_b, how.accumulate}, how);
  }
  AB_CHECK(how.after == nullptr, "[gemm] rows of a GPU are not handed on");
  if constexpr (build::kCuda) {
    const cuda::BlasProduct product{.m = m,
                                    .n = n,
                                    .k = k,
                                    .transpose_a = how.transpose_a,
                                    .transpose_b = how.transpose_b,
                                    .beta = how.accumulate ? 1.0 : 0.0};
    return cuda::gemm(c, a, b, product, how.bias);
  }
  AB_FAIL("[gemm] no kernel for this device in this build");
}

}  // namespace anabranch
