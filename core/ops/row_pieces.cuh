// Rows of one width that lie in several matrices, one after the other, for kernels.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

#include "core/tensor/pack.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

template <class T>
struct RowPieces {
  static constexpr int kMost = 128;

  T* data[kMost];
  int32_t end[kMost];  // the row behind each piece's last
  int count;

  [[nodiscard]] __device__ T* row(int32_t row, int64_t width) const {
    int i = 0;
    while (i + 1 < count && row >= end[i]) ++i;
    return data[i] + (row - (i > 0 ? end[i - 1] : 0)) * width;
  }

  [[nodiscard]] bool aligned() const {
    bool all = true;
    for (int i = 0; i < count; ++i) all = all && aligned_for_packs(data[i]);
    return all;
  }
};

// Matrices of T's elements: Tensors to write, const ones to read.
template <class T, class Matrix>
RowPieces<T> row_pieces(const char* op, std::span<Matrix> matrices) {
  AB_CHECK(std::ssize(matrices) <= RowPieces<T>::kMost, "[", op, "] ", matrices.size(),
           " pieces; at most ", RowPieces<T>::kMost);
  RowPieces<T> pieces{};
  for (Matrix& matrix : matrices) {
    const int i = pieces.count++;
    pieces.data[i] = matrix.template device_data<std::remove_const_t<T>>();
    pieces.end[i] = static_cast<int32_t>((i > 0 ? pieces.end[i - 1] : 0) + matrix.dim(0));
  }
  return pieces;
}

}  // namespace anabranch::cuda
