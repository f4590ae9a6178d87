#include "core/ops/pool_counts.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void check(const Tensor& all) {
  AB_CHECK(all.shape().rank() == 3 && all.dtype() == DType::kI64, "[pool_counts] the counts are ",
           name_of(all.dtype()), all.shape(), " but need int64[parts, choices, experts]");
}

}  // namespace

Tensor pool_counts_before(const Tensor& all, int64_t part) {
  check(all);
  AB_CHECK(0 <= part && part < all.dim(0), "[pool_counts] part ", part, " of ", all.dim(0));
  Tensor before = all.like({all.dim(1), all.dim(2)}, DType::kI64, "pool_counts.before");
  if (all.device().is_cpu()) {
    cpu::pool_counts_before(before, all, part);
    return before;
  }
  if constexpr (build::kCuda) {
    cuda::pool_counts_before(before, all, part);
    return before;
  }
  AB_FAIL("[pool_counts] no kernel for this device in this build");
}

Tensor pool_counts_total(const Tensor& all) {
  check(all);
  Tensor total = all.like({1, all.dim(2)}, DType::kI64, "pool_counts.total");
  if (all.device().is_cpu()) {
    cpu::pool_counts_total(total, all);
    return total;
  }
  if constexpr (build::kCuda) {
    cuda::pool_counts_total(total, all);
    return total;
  }
  AB_FAIL("[pool_counts] no kernel for this device in this build");
}

}  // namespace anabranch
