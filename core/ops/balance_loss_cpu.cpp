#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/balance_loss.h"
#include "core/ops/row_blocks.h"
#include "core/ops/softmax_row.h"

namespace anabranch::cpu {

double balance_loss_forward(const Tensor& logits, const std::vector<double>& shares,
                            int64_t pool_rows) {
  const int64_t E = logits.dim(1), pools = logits.dim(0) / pool_rows;
  const RowBlocks blocks(pool_rows);
  std::vector<double> sums(static_cast<size_t>(pools * blocks.count));  // of f p by block
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A* s = logits.data<A>();
    parallel_for(pools * blocks.count, 1, [=, &sums, &shares](int64_t begin, int64_t end) {
      std::vector<A> p(static_cast<size_t>(E));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t pool = i / blocks.count, block = i % blocks.count;
        const double* f = shares.data() + pool * E;
        double sum = 0;
        for (int64_t r = blocks.begin(block); r < blocks.end(block); ++r) {
          softmax_row(p.data(), s + (pool * pool_rows + r) * E, E);
          for (int64_t e = 0; e < E; ++e) sum += f[e] * static_cast<double>(p[size_t(e)]);
        }
        sums[static_cast<size_t>(i)] = sum;
      }
    });
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total * static_cast<double>(E) / static_cast<double>(logits.dim(0));
}

void balance_loss_backward(GradSink& dlogits, double dloss, const Tensor& logits,
                           const std::vector<double>& shares, int64_t pool_rows) {
  constexpr int64_t kRowGrain = 64;
  const int64_t E = logits.dim(1);
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A* s = logits.data<A>();
    A* to = dlogits.out.data<A>();
    const bool accumulate = dlogits.accumulate;
    const A scale =
        static_cast<A>(dloss * static_cast<double>(E) / static_cast<double>(logits.dim(0)));
    parallel_for(logits.dim(0), kRowGrain, [=, &shares](int64_t begin, int64_t end) {
      std::vector<A> row(static_cast<size_t>(E));
      A* p = row.data();
      for (int64_t r = begin; r < end; ++r) {
        const double* f = shares.data() + r / pool_rows * E;
        softmax_row(p, s + r * E, E);
        A mean = 0;  // of f under p
        for (int64_t e = 0; e < E; ++e) mean += p[e] * static_cast<A>(f[e]);
        A* ds = to + r * E;
        for (int64_t e = 0; e < E; ++e) {
          const A g = scale * p[e] * (static_cast<A>(f[e]) - mean);
          ds[e] = accumulate ? ds[e] + g : g;
        }
      }
    });
  });
}

}  // namespace anabranch::cpu
