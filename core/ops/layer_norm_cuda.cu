#include <utility>

#include "core/ops/layer_norm.h"
#include "core/ops/norm_rows.cuh"

namespace anabranch::cuda {

void layer_norm_forward(LayerNormForward& op) {
  dispatch(op.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    A* stats = op.stats.device_data<A>();
    const NormForward<T> k{op.y.device_data<T>(),
                           op.sum.empty() ? nullptr : op.sum.device_data<T>(),
                           stats,
                           stats + 1,
                           2,
                           std::as_const(op.x).device_data<T>(),
                           device_data_or_null<T>(op.delta),
                           std::as_const(op.w).device_data<A>(),
                           std::as_const(op.b).device_data<A>(),
                           op.stats.dim(0),
                           op.x.dim(-1),
                           static_cast<A>(op.eps)};
    norm_forward<T, true>(k, op.y.stream());
  });
}

void layer_norm_backward(LayerNormBackward& op) {
  dispatch(op.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t rows = op.stats.dim(0), width = op.x.dim(-1);
    const GridRows blocks(rows);
    Tensor partials =
        op.x.like({blocks.count, 2, width}, accumulator_of(op.x.dtype()), "layer_norm_partials");
    const A* stats = std::as_const(op.stats).device_data<A>();
    A* sums = partials.device_data<A>();
    const NormBackward<T> k{op.dx.empty() ? nullptr : op.dx.device_data<T>(),
                            device_data_or_null<T>(op.residual),
                            std::as_const(op.dy).device_data<T>(),
                            std::as_const(op.x).device_data<T>(),
                            stats,
                            stats + 1,
                            2,
                            std::as_const(op.w).device_data<A>(),
                            sums,
                            rows,
                            blocks.per_block,
                            width};
    norm_backward<T, true>(k, blocks.count, op.dy.stream());
    add_partials<A>({&op.dw, &op.db}, sums, blocks.count, 2 * width);
  });
}

}  // namespace anabranch::cuda
