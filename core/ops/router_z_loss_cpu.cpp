#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/router_z_loss.h"
#include "core/ops/row_blocks.h"
#include "core/ops/softmax_row.h"

namespace anabranch::cpu {
namespace {

// What is taken off a row's logits first.
template <class A>
A offset(const A* s, int64_t experts, ZLossForm form) {
  if (form == ZLossForm::kPlain) return 0;
  A sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += s[e];
  return sum / static_cast<A>(experts);
}

}  // namespace

double router_z_loss_forward(const Tensor& logits, ZLossForm form) {
  const int64_t E = logits.dim(1);
  const RowBlocks blocks(logits.dim(0));
  std::vector<double> sums(static_cast<size_t>(blocks.count));
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A* s = logits.data<A>();
    parallel_for(blocks.count, 1, [=, &sums](int64_t begin, int64_t end) {
      std::vector<A> p(static_cast<size_t>(E));
      for (int64_t block = begin; block < end; ++block) {
        double sum = 0;
        for (int64_t r = blocks.begin(block); r < blocks.end(block); ++r) {
          const A mean = offset(s + r * E, E, form);
          const A lse = softmax_row(p.data(), s + r * E, E) - mean;
          sum += static_cast<double>(lse * lse + mean * mean);
        }
        sums[static_cast<size_t>(block)] = sum;
      }
    });
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total / static_cast<double>(logits.dim(0));
}

void router_z_loss_backward(GradSink& dlogits, double dloss, const Tensor& logits, ZLossForm form) {
  constexpr int64_t kRowGrain = 64;
  const int64_t E = logits.dim(1);
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A* s = logits.data<A>();
    A* to = dlogits.out.data<A>();
    const bool accumulate = dlogits.accumulate;
    const A scale = static_cast<A>(2 * dloss / static_cast<double>(logits.dim(0)));
    const A uniform = form == ZLossForm::kDemeaned ? A(1) / static_cast<A>(E) : A(0);
    parallel_for(logits.dim(0), kRowGrain, [=](int64_t begin, int64_t end) {
      std::vector<A> row(static_cast<size_t>(E));
      A* p = row.data();
      for (int64_t r = begin; r < end; ++r) {
        const A mean = offset(s + r * E, E, form), lse = softmax_row(p, s + r * E, E) - mean;
        A* ds = to + r * E;
        for (int64_t e = 0; e < E; ++e) {
          const A g = scale * (lse * (p[e] - uniform) + mean * uniform);
          ds[e] = accumulate ? ds[e] + g : g;
        }
      }
    });
  });
}

}  // namespace anabranch::cpu
