#include "core/ops/add.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

struct Sum {
  static constexpr int kInputs = 2;

  template <class A>
  __device__ A operator()(A x, A y) const {
    return x + y;
  }
};

}  // namespace

void add(Tensor& z, const Tensor& x, const Tensor& y) { each(Sum{}, z, x, &y); }

}  // namespace anabranch::cuda
