// One element of a floating tensor as a double, and back: for losses, seeds and trained scalars.
// Reading one of a GPU waits for it.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch {

[[nodiscard]] inline double element(const Tensor& t, int64_t i = 0) {
  if (t.device().is_cuda()) return element(t.view(i, {1}).copy_in(nullptr));
  return dispatch(t.dtype(), [&]<class T>() {
    return static_cast<double>(static_cast<Accumulator<T>>(t.data<T>()[i]));
  });
}

inline void set_element(Tensor& t, double value, int64_t i = 0) {
  if (t.device().is_cuda()) {
    Tensor one({1}, t.dtype());
    set_element(one, value);
    return t.view(i, {1}).copy_from(one);
  }
  dispatch(t.dtype(), [&]<class T>() { t.data<T>()[i] = T(static_cast<Accumulator<T>>(value)); });
}

}  // namespace anabranch
