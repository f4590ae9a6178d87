// Blocked attention of one head of one sequence, for `attention` and `cached_attention`.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor/tensor.h"

namespace anabranch::cpu {

// Strides are in elements, from one token to the next.
template <class T>
struct HeadForward {
  const T* q;  // [queries, width]
  const T* k;  // [past + queries, width]
  const T* v;
  T* y;               // [queries, width]
  Accumulator<T>* l;  // [queries] log-sum-exp of the scaled scores; may be null
  int64_t q_stride, kv_stride, y_stride;
  int64_t queries, width;
  int64_t past = 0;                    // keys before the first query
  const int32_t* first_key = nullptr;  // [queries] that each sees, not decreasing; null: 0
  const int32_t* last_key = nullptr;   // the same; null: its own. Not without first_key
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
  bool accumulate;           // dq, dk, dv are added to
  const int32_t* first_key;  // as in HeadForward
  const int32_t* last_key;
};

class Bf16Heads;

// What one thread needs to run the heads of one call, one after the other.
template <class T>
class HeadWorker {
 public:
  enum class Pass : uint8_t { kForward, kBackward };

  // For heads of up to `keys` keys and of `width`; scratch comes from the pool of `beside`.
  HeadWorker(const Tensor& beside, int64_t keys, int64_t width, Pass pass);
  ~HeadWorker();
  HeadWorker(const HeadWorker&) = delete;
  HeadWorker& operator=(const HeadWorker&) = delete;

  void forward(const HeadForward<T>& head);
  void backward(const HeadBackward<T>& head);

 private:
  Tensor scratch_;
  std::unique_ptr<Bf16Heads> bf16_;  // set if the products of bf16 are worth it
};

}  // namespace anabranch::cpu
