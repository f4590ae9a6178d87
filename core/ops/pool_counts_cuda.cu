#include "core/ops/pool_counts.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// An expert for each thread: there are few parts and choices. Reads the counts once.
struct Before {
  int64_t* before;
  const int64_t* all;
  int64_t parts, choices, experts, part;

  template <int kN>
  __device__ void at(int64_t e) const {
    int64_t served = 0;
    for (int64_t c = 0; c < choices; ++c) {
      for (int64_t r = 0; r < parts; ++r) {
        if (r == part) before[c * experts + e] = served;
        served += all[(r * choices + c) * experts + e];
      }
    }
  }
};

struct Total {
  int64_t* total;
  const int64_t* all;
  int64_t of_expert, experts;

  template <int kN>
  __device__ void at(int64_t e) const {
    int64_t sum = 0;
    for (int64_t i = 0; i < of_expert; ++i) sum += all[i * experts + e];
    total[e] = sum;
  }
};

}  // namespace

void pool_counts_before(Tensor& before, const Tensor& all, int64_t part) {
  const Before f{before.device_data<int64_t>(),
                 all.device_data<int64_t>(),
                 all.dim(0),
                 all.dim(1),
                 all.dim(2),
                 part};
  each_pack<1>(f, f.experts, false, before.stream());
}

void pool_counts_total(Tensor& total, const Tensor& all) {
  const Total f{total.device_data<int64_t>(), all.device_data<int64_t>(), all.dim(0) * all.dim(1),
                all.dim(2)};
  each_pack<1>(f, f.experts, false, total.stream());
}

}  // namespace anabranch::cuda
