#include <algorithm>
#include <cmath>
#include <vector>

#include "core/ops/gate_figures.h"

namespace anabranch::cpu {

void gate_figures(Tensor& to, const Tensor& gates) {
  const int64_t N = gates.dim(1);
  const bool all = to.count() > N;
  to.fill_zero();
  auto* sums = to.data<double>();
  double *tops = sums + N, *entropy = sums + 2 * N;
  std::vector<double> row(static_cast<size_t>(N));
  dispatch(gates.dtype(), [&]<class T>() {
    const T* g = gates.data<T>();
    for (int64_t i = 0; i < gates.dim(0); ++i, g += N) {
      for (int64_t k = 0; k < N; ++k) {
        const auto gate = static_cast<double>(static_cast<Accumulator<T>>(g[k]));
        row[static_cast<size_t>(k)] = gate;
        sums[k] += gate;
        if (all && gate > 0) *entropy -= gate * std::log(gate);
      }
      if (all) tops[std::max_element(row.begin(), row.end()) - row.begin()] += 1;
    }
  });
}

}  // namespace anabranch::cpu
