#include "core/ops/scale_gradient.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

struct Scale {
  static constexpr int kInputs = 1;
  double factor;

  template <class A>
  __device__ A operator()(A dy) const {
    return static_cast<A>(factor) * dy;
  }
};

}  // namespace

void scale(Tensor& dx, const Tensor& dy, double factor) { each(Scale{factor}, dx, dy); }

}  // namespace anabranch::cuda
