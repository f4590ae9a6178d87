#include "core/ops/permute_rows.h"
#include "core/ops/row_packs.cuh"
#include "core/ops/row_pieces.cuh"

namespace anabranch::cuda {
namespace {

// y[i] = row order[i] of the pieces.
template <class T, int kN>
__global__ void __launch_bounds__(kRowThreads)
    take_rows_kernel(T* y, RowPieces<const T> pieces, const int32_t* order, int64_t rows,
                     int64_t width) {
  const int64_t i = row_of_thread();
  if (i >= rows) return;
  const T* row = pieces.row(order[i], width);
  for (int64_t c = threadIdx.x * kN; c < width; c += blockDim.x * kN) {
    store(y + i * width + c, load<kN>(row + c));
  }
}

// Row order[i] of the pieces = dy[i].
template <class T, int kN>
__global__ void __launch_bounds__(kRowThreads)
    put_rows_kernel(RowPieces<T> pieces, const T* dy, const int32_t* order, int64_t rows,
                    int64_t width) {
  const int64_t i = row_of_thread();
  if (i >= rows) return;
  T* row = pieces.row(order[i], width);
  for (int64_t c = threadIdx.x * kN; c < width; c += blockDim.x * kN) {
    store(row + c, load<kN>(dy + i * width + c));
  }
}

__global__ void __launch_bounds__(kRowThreads)
    inverse_order_kernel(int32_t* inverse, const int32_t* order, const int32_t* places,
                         int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (i >= count) return;
  const int32_t at = order[i];
  inverse[places != nullptr ? places[at] : at] = static_cast<int32_t>(i);
}

}  // namespace

// Both move 2 rows and 4 bytes for each row.
void permute_rows_forward(Tensor& y, std::span<const Tensor> pieces, const Tensor& order) {
  if (y.count() == 0) return;
  const int64_t rows = y.dim(0), width = y.count() / rows;
  dispatch(y.dtype(), [&]<class T>() {
    const RowPieces<const T> from = row_pieces<const T>("permute_rows", pieces);
    T* to = y.device_data<T>();
    with_packs<T>(width, from.aligned() && aligned_for_packs(to), [&]<int kN>() {
      launch<take_rows_kernel<T, kN>>(row_grid<kN>(rows, width), y.stream(), to, from,
                                      order.device_data<int32_t>(), rows, width);
    });
  });
}

void permute_rows_backward(std::span<Tensor> dpieces, const Tensor& dy, const Tensor& order) {
  if (dy.count() == 0) return;
  const int64_t rows = dy.dim(0), width = dy.count() / rows;
  dispatch(dy.dtype(), [&]<class T>() {
    const RowPieces<T> to = row_pieces<T>("permute_rows", dpieces);
    const T* from = dy.device_data<T>();
    with_packs<T>(width, to.aligned() && aligned_for_packs(from), [&]<int kN>() {
      launch<put_rows_kernel<T, kN>>(row_grid<kN>(rows, width), dy.stream(), to, from,
                                     order.device_data<int32_t>(), rows, width);
    });
  });
}

void inverse_order(Tensor& inverse, const Tensor& order, const Tensor& places) {
  const int64_t count = order.count();
  const auto blocks = static_cast<unsigned>((count + kRowThreads - 1) / kRowThreads);
  launch<inverse_order_kernel>({.blocks = dim3(blocks), .threads = dim3(kRowThreads)},
                               order.stream(), inverse.device_data<int32_t>(),
                               order.device_data<int32_t>(),
                               places.empty() ? nullptr : places.device_data<int32_t>(), count);
}

}  // namespace anabranch::cuda
