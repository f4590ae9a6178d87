#include "core/base/parallel_for.h"
#include "core/ops/attention.h"
#include "core/ops/attention_head.h"

namespace anabranch::cpu {
namespace {

// Heads that are worth a thread's while.
int64_t head_grain(int64_t tokens, int64_t width) {
  constexpr int64_t kWork = 1 << 16;
  return 1 + kWork / (tokens * tokens * width + 1);
}

// [B, T]; null if there is none.
const int32_t* data_of(const Tensor& bound) {
  return bound.empty() ? nullptr : bound.data<int32_t>();
}

const int32_t* of_sequence(const int32_t* bound, int64_t row) {
  return bound == nullptr ? nullptr : bound + row;
}

}  // namespace

void attention_forward(Tensor& y, Tensor& lse, const Tensor& qkv, const KeyBounds& bounds) {
  const int64_t batch = lse.dim(0), heads = lse.dim(1), tokens = lse.dim(2);
  const int64_t channels = y.dim(1), width = channels / heads;
  dispatch(qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T* const x = qkv.data<T>();
    T* const out = y.data<T>();
    A* const l = lse.data<A>();
    const int32_t *const first = data_of(bounds.first), *const last = data_of(bounds.last);
    parallel_for(batch * heads, head_grain(tokens, width), [=, &qkv](int64_t begin, int64_t end) {
      HeadWorker<T> worker(qkv, tokens, width, HeadWorker<T>::Pass::kForward);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / heads * tokens, column = i % heads * width;
        const T* q = x + row * 3 * channels + column;
        worker.forward({.q = q,
                        .k = q + channels,
                        .v = q + 2 * channels,
                        .y = out + row * channels + column,
                        .l = l + i * tokens,
                        .q_stride = 3 * channels,
                        .kv_stride = 3 * channels,
                        .y_stride = channels,
                        .queries = tokens,
                        .width = width,
                        .first_key = of_sequence(first, row),
                        .last_key = of_sequence(last, row)});
      }
    });
  });
}

void attention_backward(GradSink& dqkv, const Tensor& dy, const Tensor& qkv,
                        const KeyBounds& bounds, const Tensor& y, const Tensor& lse) {
  const int64_t batch = lse.dim(0), heads = lse.dim(1), tokens = lse.dim(2);
  const int64_t channels = y.dim(1), width = channels / heads;
  dispatch(qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *const x = qkv.data<T>(), *const out = y.data<T>(), *const d_out = dy.data<T>();
    const A* const l = lse.data<A>();
    T* const dx = dqkv.out.data<T>();
    const bool accumulate = dqkv.accumulate;
    const int32_t *const first = data_of(bounds.first), *const last = data_of(bounds.last);
    parallel_for(batch * heads, head_grain(tokens, width), [=, &qkv](int64_t begin, int64_t end) {
      HeadWorker<T> worker(qkv, tokens, width, HeadWorker<T>::Pass::kBackward);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / heads * tokens, column = i % heads * width;
        const int64_t packed = row * 3 * channels + column, plain = row * channels + column;
        worker.backward({.q = x + packed,
                         .k = x + packed + channels,
                         .v = x + packed + 2 * channels,
                         .y = out + plain,
                         .dy = d_out + plain,
                         .l = l + i * tokens,
                         .dq = dx + packed,
                         .dk = dx + packed + channels,
                         .dv = dx + packed + 2 * channels,
                         .qkv_stride = 3 * channels,
                         .y_stride = channels,
                         .tokens = tokens,
                         .width = width,
                         .accumulate = accumulate,
                         .first_key = of_sequence(first, row),
                         .last_key = of_sequence(last, row)});
      }
    });
  });
}

}  // namespace anabranch::cpu
