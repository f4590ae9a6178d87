#include "core/ops/fold_streams.h"
#include "core/tensor/rows.cuh"

namespace anabranch::cuda {
namespace {

// Row i of the result is row (i % inner) * outer + i / inner of `from`.
template <class T>
struct Turned {
  const T* from;
  int64_t inner, outer, width;

  const __device__ T* operator()(int64_t row) const {
    return from + (row % inner * outer + row / inner) * width;
  }
};

}  // namespace

void fold_streams(Tensor& to, const Tensor& from, int64_t streams, bool back) {
  const Tensor& plain = back ? to : from;
  const int64_t C = plain.dim(1), rows = plain.dim(0) / streams;
  dispatch(to.dtype(), [&]<class T>() {
    const T* source = from.device_data<T>();
    const Turned<T> turned{source, back ? rows : streams, back ? streams : rows, C};
    copy_rows(to.device_data<T>(), turned, plain.dim(0), C, aligned_for_packs(source), to.stream());
  });
}

}  // namespace anabranch::cuda
