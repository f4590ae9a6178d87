#include "runtime/models/head.h"

#include <algorithm>

#include "core/ops/gather_rows.h"
#include "core/ops/gemm.h"
#include "core/ops/linear_cross_entropy.h"

namespace anabranch {

Var Head::loss(const Var& x, const Tensor& targets, double scale) const {
  return linear_cross_entropy(x, table_, flat(targets).beside(x.value()), scale, softcap_);
}

Tensor Head::losses(const Tensor& x, const Tensor& targets) const {
  Tensor losses = x.like({x.dim(0)}, accumulator_of(x.dtype()), "token_losses");
  token_losses(losses, x, table_, flat(targets).beside(x), softcap_);
  return losses;
}

Tensor Head::logits(const Tensor& x) const {
  Tensor logits = x.like({x.dim(0), table_.shape[0]}, accumulator_of(x.dtype()), "logits");
  gemm(logits, x, table_.value, {.transpose_b = true});
  cap_logits(logits, softcap_);
  return logits;
}

Tensor chosen_rows(const Tensor& x, std::span<const int64_t> rows) {
  Tensor source({std::ssize(rows)}, DType::kI32);
  std::ranges::copy(rows, source.data<int32_t>());
  return gather_rows(x, source.beside(x)).value();
}

Tensor flat(const Tensor& ids) { return ids.reshape({ids.count()}); }

Tensor positions_from(const Tensor& ids, std::span<const int64_t> first, int64_t last) {
  const int64_t B = ids.dim(0), T = ids.dim(1);
  Tensor positions = ids.like({B * T}, DType::kI32, "positions");
  for (int64_t b = 0; b < B; ++b) {
    const int64_t start = first.empty() ? 0 : first[static_cast<size_t>(b)];
    for (int64_t t = 0; t < T; ++t) {
      positions.data<int32_t>()[b * T + t] = static_cast<int32_t>(std::min(start + t, last));
    }
  }
  return positions;
}

}  // namespace anabranch
