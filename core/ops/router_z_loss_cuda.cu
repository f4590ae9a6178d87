#include "core/ops/mean_of_rows.cuh"
#include "core/ops/router_z_loss.h"

namespace anabranch::cuda {
namespace {

template <class A>
struct Row {
  RowSoftmax<A> p;
  A mean, log_sum;  // mean: what is taken off the logits first; log_sum: what is left
};

template <class A>
struct Logits {
  const A* s;
  int experts, lanes;
  bool demeaned;

  [[nodiscard]] __device__ Row<A> row(const LaneRow& at) const {
    const A* mine = s + at.row * experts;
    A mean = 0;
    if (demeaned) {
      for (int e = at.lane; e < experts; e += lanes) mean += mine[e];
      mean = group_sum(mean, lanes) / static_cast<A>(experts);
    }
    const RowSoftmax<A> p = row_softmax(mine, experts, at.lane, lanes);
    return {p, mean, p.log_sum() - mean};
  }
};

template <class A>
Logits<A> logits_of(const Tensor& s, ZLossForm form) {
  return {s.device_data<A>(), static_cast<int>(s.dim(1)), lanes_for(s.dim(1)),
          form == ZLossForm::kDemeaned};
}

template <class A>
struct Squares {
  Logits<A> logits;

  __device__ A operator()(const LaneRow& at) const {
    const Row<A> row = logits.row(at);
    return row.log_sum * row.log_sum + row.mean * row.mean;
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
    const Row<A> row = logits.row(at);
    if (!at.here) return;
    const A scale = 2 * *dloss / static_cast<A>(rows);
    const A uniform = logits.demeaned ? A(1) / static_cast<A>(logits.experts) : A(0);
    const int64_t first = at.row * logits.experts;
    for (int e = at.lane; e < logits.experts; e += logits.lanes) {
      const A p = row.p.of(logits.s[first + e]);
      const A g = scale * (row.log_sum * (p - uniform) + row.mean * uniform);
      dlogits[first + e] = accumulate ? dlogits[first + e] + g : g;
    }
  }
};

}  // namespace

void router_z_loss_forward(Tensor& loss, const Tensor& logits, ZLossForm form) {
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Squares<A> squares{logits_of<A>(logits, form)};
    sum_of_rows<A>(loss, squares, logits.dim(0), squares.logits.lanes,
                   1 / static_cast<double>(logits.dim(0)));
  });
}

void router_z_loss_backward(GradSink& dlogits, const Tensor& dloss, const Tensor& logits,
                            ZLossForm form) {
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Backward<A> back{logits_of<A>(logits, form), dlogits.out.device_data<A>(),
                           dloss.device_data<A>(), logits.dim(0), dlogits.accumulate};
    for_rows(back, logits.dim(0), back.logits.lanes, logits.stream());
  });
}

}  // namespace anabranch::cuda
