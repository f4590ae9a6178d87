#include "core/ops/gelu.cuh"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

struct Forward {
  static constexpr int kInputs = 1;
  GeluForm form;

  template <class A>
  __device__ A operator()(A x) const {
    return gelu_at(x, form).value;
  }
};

struct Backward {
  static constexpr int kInputs = 2;
  GeluForm form;

  template <class A>
  __device__ A operator()(A dy, A x) const {
    return dy * gelu_at(x, form).slope;
  }
};

}  // namespace

void gelu_forward(Tensor& y, const Tensor& x, GeluForm form) { each(Forward{form}, y, x); }

void gelu_backward(Tensor& dx, const Tensor& dy, const Tensor& x, GeluForm form) {
  each(Backward{form}, dx, dy, &x);
}

}  // namespace anabranch::cuda
