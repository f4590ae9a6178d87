#include <algorithm>
#include <cmath>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/attention_head.h"
#include "core/ops/attention_pack.h"
#include "core/ops/cached_attention.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

// Below this many queries a head is bound by reading its keys, and tiles of queries are idle lanes.
constexpr int64_t kFewQueries = 8;

// Turns scores into weights that sum to 1.
template <class A>
[[gnu::always_inline]] inline void softmax_of(A* s, int64_t n, A scale) {
  A max = s[0], sum = 0;
  for (int64_t j = 0; j < n; ++j) max = s[j] > max ? s[j] : max;
  for (int64_t j = 0; j < n; ++j) s[j] = exp_fast((s[j] - max) * scale);
  for (int64_t j = 0; j < n; ++j) sum += s[j];
  for (int64_t j = 0; j < n; ++j) s[j] /= sum;
}

AB_CLONES void softmax(float* s, int64_t n, float scale) { softmax_of(s, n, scale); }

void softmax(double* s, int64_t n, double scale) { softmax_of(s, n, scale); }

// to[c] = sum_r weights[r] x[r, c]
template <class T>
[[gnu::always_inline]] inline void mix_of(Accumulator<T>* __restrict__ to, const Rows<const T>& x,
                                          const Accumulator<T>* weights) {
  using A = Accumulator<T>;
  for (int64_t c = 0; c < x.width; ++c) to[c] = 0;
  for (int64_t r = 0; r < x.rows; ++r) {
    const T* row = x.data + r * x.stride;
    for (int64_t c = 0; c < x.width; ++c) to[c] += weights[r] * static_cast<A>(row[c]);
  }
}

AB_CLONES void mix(float* to, const Rows<const float>& x, const float* weights) {
  mix_of(to, x, weights);
}

AB_CLONES void mix(float* to, const Rows<const Bf16>& x, const float* weights) {
  mix_of(to, x, weights);
}

void mix(double* to, const Rows<const double>& x, const double* weights) { mix_of(to, x, weights); }

// head_forward for few queries: one at a time, along its keys.
template <class T>
void attend_one_by_one(const HeadForward<T>& head, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  const auto scale = static_cast<A>(1 / std::sqrt(static_cast<double>(head.width)));
  A* const sums = scratch;
  A* const scores = scratch + head.width;
  for (int64_t i = 0; i < head.queries; ++i) {
    const int64_t keys = head.past + i + 1;
    const T* const q = head.q + i * head.q_stride;
    dot_rows(scores, Rows<const T>{q, 0, keys, head.width},
             Rows<const T>{head.k, head.kv_stride, keys, head.width});
    softmax(scores, keys, scale);
    mix(sums, Rows<const T>{head.v, head.kv_stride, keys, head.width}, scores);
    store_rows(Rows<T>{head.y + i * head.y_stride, head.y_stride, 1, head.width}, sums, head.width,
               false);
  }
}

template <class T>
void append(KvCache& cache, const Tensor& qkv, std::span<const int64_t> counts) {
  const int64_t batch = cache.keys.dim(0), capacity = cache.keys.dim(1), c = cache.keys.dim(2);
  const int64_t rows = qkv.dim(0) / batch;
  for (int64_t b = 0; b < batch; ++b) {
    const auto sequence = static_cast<size_t>(b);
    for (int64_t i = 0; i < counts[sequence]; ++i) {
      const T* const from = qkv.data<T>() + (b * rows + i) * 3 * c;
      const int64_t to = (b * capacity + cache.lengths[sequence] + i) * c;
      std::copy_n(from + c, c, cache.keys.data<T>() + to);
      std::copy_n(from + 2 * c, c, cache.values.data<T>() + to);
    }
  }
}

template <class T>
void attend_sequences(Tensor& y, const Tensor& qkv, const KvCache& cache, int64_t heads,
                      std::span<const int64_t> counts) {
  using A = Accumulator<T>;
  const int64_t batch = cache.keys.dim(0), capacity = cache.keys.dim(1), c = cache.keys.dim(2);
  const int64_t rows = qkv.dim(0) / batch, width = c / heads;
  int64_t longest = 0;
  for (size_t b = 0; b < counts.size(); ++b) {
    longest = std::max(longest, cache.lengths[b] + counts[b]);
  }
  T* const out = y.data<T>();
  parallel_for(batch * heads, 1, [=, &qkv, &cache](int64_t begin, int64_t end) {
    HeadWorker<T> worker(qkv, longest, width, HeadWorker<T>::Pass::kForward);
    Tensor scratch = qkv.like({longest + width}, kDTypeOf<A>, "attention scratch");
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / heads, column = i % heads * width;
      const auto sequence = static_cast<size_t>(b);
      const HeadForward<T> head{.q = qkv.data<T>() + b * rows * 3 * c + column,
                                .k = cache.keys.data<T>() + b * capacity * c + column,
                                .v = cache.values.data<T>() + b * capacity * c + column,
                                .y = out + b * rows * c + column,
                                .l = nullptr,
                                .q_stride = 3 * c,
                                .kv_stride = c,
                                .y_stride = c,
                                .queries = counts[sequence],
                                .width = width,
                                .past = cache.lengths[sequence]};
      if (head.queries < kFewQueries) {
        attend_one_by_one(head, scratch.data<A>());
      } else {
        worker.forward(head);
      }
    }
  });
}

}  // namespace

void cached_attention(Tensor& y, const Tensor& qkv, KvCache& cache, int64_t heads,
                      std::span<const int64_t> counts) {
  y.fill_zero();
  dispatch(qkv.dtype(), [&]<class T>() {
    append<T>(cache, qkv, counts);
    attend_sequences<T>(y, qkv, cache, heads, counts);
  });
}

}  // namespace anabranch::cpu
