#include <utility>

#include "core/ops/norm_rows.cuh"
#include "core/ops/rms_norm.h"

namespace anabranch::cuda {

void rms_norm_forward(RmsNormForward& op) {
  dispatch(op.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const NormForward<T> k{op.y.device_data<T>(),
                           op.sum.empty() ? nullptr : op.sum.device_data<T>(),
                           nullptr,
                           op.r.device_data<A>(),
                           1,
                           std::as_const(op.x).device_data<T>(),
                           device_data_or_null<T>(op.delta),
                           device_data_or_null<A>(op.w),
                           nullptr,
                           op.r.dim(0),
                           op.x.dim(-1),
                           static_cast<A>(op.eps)};
    norm_forward<T, false>(k, op.y.stream());
  });
}

void rms_norm_backward(RmsNormBackward& op) {
  dispatch(op.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t rows = op.r.dim(0), width = op.x.dim(-1);
    const GridRows blocks(rows);
    Tensor partials;
    if (!op.w.empty()) {
      partials =
          op.x.like({blocks.count, width}, accumulator_of(op.x.dtype()), "rms_norm_partials");
    }
    A* sums = op.w.empty() ? nullptr : partials.device_data<A>();
    const NormBackward<T> k{op.dx.empty() ? nullptr : op.dx.device_data<T>(),
                            device_data_or_null<T>(op.residual),
                            std::as_const(op.dy).device_data<T>(),
                            std::as_const(op.x).device_data<T>(),
                            nullptr,
                            std::as_const(op.r).device_data<A>(),
                            1,
                            device_data_or_null<A>(op.w),
                            sums,
                            rows,
                            blocks.per_block,
                            width};
    norm_backward<T, false>(k, blocks.count, op.dy.stream());
    if (!op.w.empty()) add_partials<A>(op.dw, sums, blocks.count, width);
  });
}

}  // namespace anabranch::cuda
