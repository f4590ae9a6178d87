// Blocked attention of one head of one sequence, for `attention` and `cached_attention`.
//
// Strides are in elements, from one token to the next. All arithmetic is in Accumulator<T>; the
// scratch is made once per thread and serves any number of heads.
#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"

namespace anabranch::cpu {

template <class T>
struct HeadForward {
  const T* q;  // [queries, width]
  const T* k;  // [past + queries, width]
  const T* v;
  T* y;               // [queries, width]
  Accumulator<T>* l;  // [queries] log-sum-exp of the scaled scores; may be null
  int64_t q_stride, kv_stride, y_stride;
  int64_t queries, width;
  int64_t past = 0;  // keys before the first query, seen by all queries
};

template <class T>
struct HeadBackward {
  const T* q;
  const T* k;
  const T* v;
  const T* y;
  const T* dy;
  const Accumulator<T>* l;
  T* dq;
  T* dk;
  T* dv;
  int64_t qkv_stride, y_stride;  // of q, k, v, dq, dk, dv; of y, dy
  int64_t tokens, width;
  bool accumulate;  // dq, dk, dv are added to
};

// Elements of scratch, aligned to 64 bytes, for up to `keys` keys.
template <class A>
[[nodiscard]] int64_t forward_scratch(int64_t keys, int64_t width);
template <class A>
[[nodiscard]] int64_t backward_scratch(int64_t tokens, int64_t width);

template <class T>
void head_forward(const HeadForward<T>& head, Accumulator<T>* scratch);
template <class T>
void head_backward(const HeadBackward<T>& head, Accumulator<T>* scratch);

}  // namespace anabranch::cpu
