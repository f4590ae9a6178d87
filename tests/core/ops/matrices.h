// Matrices for the tests of polar and of the optimizers that use it.
#pragma once

#include "tests/support/tensors.h"

namespace anabranch::test {

// [rows, cols] -> [cols, rows]
inline Tensor transposed(const Tensor& x) {
  const int64_t rows = x.dim(0), cols = x.dim(1);
  Tensor t({cols, rows}, x.dtype());
  dispatch(x.dtype(), [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) t.data<T>()[c * rows + r] = x.data<T>()[r * cols + c];
    }
  });
  return t;
}

// |got - want| / |want|, Frobenius.
inline double distance(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = values(got), b = values(want);
  double apart = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(apart / norm);
}

}  // namespace anabranch::test
