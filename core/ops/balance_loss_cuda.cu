#include "core/ops/balance_loss.h"
#include "core/ops/mean_of_rows.cuh"

namespace anabranch::cuda {
namespace {

template <class A>
struct Logits {
  const A* s;
  const int64_t* counts;
  int64_t pool_rows;
  double per_count;
  int experts, lanes;

  // Calls each(e, p_e, f_e) for the lane's experts.
  template <class Each>
  __device__ void for_experts(const LaneRow& at, const RowSoftmax<A>& p, const Each& each) const {
    const A* mine = s + at.row * experts;
    const int64_t* of_pool = counts + at.row / pool_rows * experts;
    for (int e = at.lane; e < experts; e += lanes) {
      each(e, p.of(mine[e]), static_cast<A>(static_cast<double>(of_pool[e]) * per_count));
    }
  }

  [[nodiscard]] __device__ RowSoftmax<A> softmax(const LaneRow& at) const {
    return row_softmax(s + at.row * experts, experts, at.lane, lanes);
  }

  // Of the shares under p.
  [[nodiscard]] __device__ A mean_share(const LaneRow& at, const RowSoftmax<A>& p) const {
    A sum = 0;
    for_experts(at, p, [&](int, A of_p, A share) { sum += of_p * share; });
    return group_sum(sum, lanes);
  }
};

template <class A>
struct Forward {
  Logits<A> logits;

  __device__ A operator()(const LaneRow& at) const {
    return logits.mean_share(at, logits.softmax(at));
  }
};

template <class A>
struct Backward {
  Logits<A> logits;
  A* dlogits;
  const A* dloss;
  int64_t rows;
  bool accumulate;

  __device__ void operator()(const LaneRow& at) const {
    const RowSoftmax<A> p = logits.softmax(at);
    const A mean = logits.mean_share(at, p);
    if (!at.here) return;
    const A scale = *dloss * static_cast<A>(logits.experts) / static_cast<A>(rows);
    A* ds = dlogits + at.row * logits.experts;
    logits.for_experts(at, p, [&](int e, A of_p, A share) {
      const A g = scale * of_p * (share - mean);
      ds[e] = accumulate ? ds[e] + g : g;
    });
  }
};

template <class A>
Logits<A> logits_of(const Tensor& s, const BalanceShares& shares) {
  return {s.device_data<A>(), shares.counts.device_data<int64_t>(), shares.pool_rows,
          shares.per_count,   static_cast<int>(s.dim(1)),           lanes_for(s.dim(1))};
}

}  // namespace

void balance_loss_forward(Tensor& loss, const Tensor& logits, const BalanceShares& shares) {
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Forward<A> forward{logits_of<A>(logits, shares)};
    sum_of_rows<A>(loss, forward, logits.dim(0), forward.logits.lanes,
                   static_cast<double>(logits.dim(1)) / static_cast<double>(logits.dim(0)));
  });
}

void balance_loss_backward(GradSink& dlogits, const Tensor& dloss, const Tensor& logits,
                           const BalanceShares& shares) {
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Backward<A> back{logits_of<A>(logits, shares), dlogits.out.device_data<A>(),
                           dloss.device_data<A>(), logits.dim(0), dlogits.accumulate};
    for_rows(back, logits.dim(0), back.logits.lanes, logits.stream());
  });
}

}  // namespace anabranch::cuda
