// What the optimizers of whole matrices share: batches, momentum, sums along an axis, and the step.
#pragma once

#include <functional>
#include <span>

#include "core/tensor/tensor.h"

namespace anabranch {

// Equal matrices that lie one behind the other.
struct MatrixBatch {
  int64_t count, rows, cols;

  [[nodiscard]] int64_t longer() const { return rows > cols ? rows : cols; }

  [[nodiscard]] int64_t shorter() const { return rows > cols ? cols : rows; }

  // Matrix `index` of a tensor [count, rows, cols] or, if there is one, [rows, cols].
  [[nodiscard]] Tensor at(const Tensor& t, int64_t index) const {
    return t.view(index * rows * cols, {rows, cols});
  }
};

// The part of a step that does not depend on how the direction is made.
//
//   v = (1 - momentum) g + momentum m', or m' without nesterov;  g the gradient times grad_scale
//   m' = m + (1 - momentum) (g - m)
//   w <- w - rate u - decay w, the decay only where u w >= 0 if it is cautious
struct MatrixStep {
  double rate = 0, decay = 0, momentum = 0, grad_scale = 1;
  bool nesterov = true, cautious = false;
};

// The tensors of one: all float32 or all float64, of equal shapes.
struct MatrixState {
  Tensor &master, &m;
  const Tensor& grad;
  Tensor* value;  // receives the rounded master: bfloat16; may be null
};

// The batch that `t` is; throws Error that names `op` unless it is [rows, cols] or [S, rows, cols].
MatrixBatch matrix_batch(const char* op, const Tensor& t);

// Throws Error that names `op` if the tensors do not fit each other or the type of the products.
void check_matrix_state(const char* op, const MatrixState& state, DType compute);

namespace cpu {

// Calls body(i) for every matrix: as many at once as there are threads, each on one of them; what
// is left of large ones one by one, on all threads. What body computes must not depend on the
// number of threads.
void each_matrix(const MatrixBatch& batch, const std::function<void(int64_t)>& body);

// v of one matrix; leaves m as it is.
void momentum_direction(Tensor& v, const Tensor& m, const Tensor& grad, const MatrixStep& step);

// squares[i] = the sum of squares of row i, or of column i. x [rows, cols], float32 or float64.
void axis_squares(std::span<double> squares, const Tensor& x, bool of_rows);

// to = from with row i, or column i, times factors[i], which are rounded to the type of `from`.
void scale_axis(Tensor& to, const Tensor& from, std::span<const double> factors, bool of_rows);

// m <- m' and the step of w along u, for matrix `index`.
void matrix_step(const MatrixState& state, const MatrixBatch& batch, int64_t index, const Tensor& u,
                 const MatrixStep& step);

}  // namespace cpu

// The same on a GPU, of all matrices of a batch at once. What the CPU decides on the host is in
// tensors here: nobody waits for the GPU.
namespace cuda {

// v of all matrices; leaves m as it is.
void momentum_direction(Tensor& v, const Tensor& m, const Tensor& grad, const MatrixStep& step);

// squares [S, n] float64: of each row, or of each column, of each matrix of x.
void axis_squares(Tensor& squares, const Tensor& x, const MatrixBatch& batch, bool of_rows);

// sums[s] = the sum of the n elements of values [S, n]; both float64.
void sum_each(Tensor& sums, const Tensor& values);

// to = from with row i, or column i, of each matrix times factors[s, i], float64, which are rounded
// to the type of `from`. `to` may be of a narrower type.
void scale_axis(Tensor& to, const Tensor& from, const Tensor& factors, const MatrixBatch& batch,
                bool of_rows);

// m <- m' and the step of w along u, of which rows or columns are scaled by `factors` as
// scale_axis does, if there are any. A matrix whose norms[s], float64, is not finite stays as it is
// and adds 1 to rejected[0], float64, if that is not null.
void matrix_step(const MatrixState& state, const MatrixBatch& batch, const Tensor& u,
                 const Tensor* factors, bool of_rows, const Tensor& norms, Tensor* rejected,
                 const MatrixStep& step);

}  // namespace cuda
}  // namespace anabranch
