#include <cmath>

#include "core/ops/binary_cross_entropy.h"
#include "core/ops/mean_of_rows.cuh"

namespace anabranch::cuda {
namespace {

// Elements are rows of one lane.
template <class A>
struct Forward {
  const A* logits;
  const uint8_t* member;

  __device__ double operator()(const LaneRow& at) const {
    const auto v = static_cast<double>(logits[at.row]);
    // softplus(v) = max(v, 0) + log(1 + exp(-|v|)): exp cannot overflow
    const double softplus = std::fmax(v, 0.0) + std::log1p(std::exp(-std::fabs(v)));
    return softplus - (member[at.row] != 0 ? v : 0.0);
  }
};

template <class A>
struct Backward {
  A* dlogits;
  const A *dloss, *logits;
  const uint8_t* member;
  int64_t count;
  bool accumulate;

  __device__ void operator()(const LaneRow& at) const {
    if (!at.here) return;
    const double p = 1 / (1 + std::exp(-static_cast<double>(logits[at.row])));
    const double seed = static_cast<double>(*dloss) / static_cast<double>(count);
    const A g = static_cast<A>(seed * (p - (member[at.row] != 0 ? 1.0 : 0.0)));
    dlogits[at.row] = accumulate ? dlogits[at.row] + g : g;
  }
};

}  // namespace

void binary_cross_entropy_forward(Tensor& loss, const Tensor& logits, const Tensor& member) {
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Forward<A> forward{logits.device_data<A>(), member.device_data<uint8_t>()};
    sum_of_rows<A>(loss, forward, logits.count(), 1, 1 / static_cast<double>(logits.count()));
  });
}

void binary_cross_entropy_backward(GradSink& dlogits, const Tensor& dloss, const Tensor& logits,
                                   const Tensor& member) {
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Backward<A> back{
        dlogits.out.device_data<A>(),  dloss.device_data<A>(), logits.device_data<A>(),
        member.device_data<uint8_t>(), logits.count(),         dlogits.accumulate};
    for_rows(back, logits.count(), 1, logits.stream());
  });
}

}  // namespace anabranch::cuda
