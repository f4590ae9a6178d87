#include <cmath>
#include <utility>

#include "core/ops/gemm.h"
#include "core/ops/matrix_batch.h"
#include "core/ops/polar.h"
#include "core/tensor/convert.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// factors[s, i] = 1 / (scale |X_s| + eps), for each row i
struct Inverse {
  double* factors;
  const double* squares;
  double scale, eps;
  int64_t rows;

  template <int kN>
  __device__ void at(int64_t matrix, int64_t row) const {
    static_assert(kN == 1);
    factors[matrix * rows + row] = 1 / (scale * std::sqrt(squares[matrix]) + eps);
  }
};

// X <- X / (scale |X| + eps), rounded to x's type.
void normalise(Tensor& x, const Tensor& in, const MatrixBatch& batch, const PolarForm& form) {
  Tensor factors = in.like({batch.count, batch.rows}, DType::kF64, "polar"),
         squares = in.like({batch.count}, DType::kF64, "polar");
  axis_squares(factors, in, batch, true);
  sum_each(squares, factors);
  const Inverse f{factors.device_data<double>(), squares.device_data<double>(), form.scale,
                  form.eps, batch.rows};
  each_row<1>(f, batch.count, batch.rows, false, in.stream());
  scale_axis(x, in, factors, batch, true);
}

// Products of all matrices at once, with the Gram matrix of their short side. What is added to one
// is put into its place first.
class Products {
 public:
  explicit Products(const MatrixBatch& m) : m_(m), tall_(m.rows > m.cols) {}

  // X X^T, or X^T X of a tall X
  void gram(Tensor& to, const Tensor& x) const {
    const int64_t n = m_.shorter(), area = m_.rows * m_.cols;
    run(to, x, x,
        {.m = n,
         .n = n,
         .k = m_.longer(),
         .transpose_a = tall_,
         .transpose_b = !tall_,
         .batch = m_.count,
         .stride_a = area,
         .stride_b = area,
         .stride_c = n * n});
  }

  // b A + c A^2
  void polynomial(Tensor& to, const Tensor& gram, double b, double c) const {
    const int64_t n = m_.shorter(), area = n * n;
    to.copy_from(gram);
    run(to, gram, gram,
        {.m = n,
         .n = n,
         .k = n,
         .alpha = c,
         .beta = b,
         .batch = m_.count,
         .stride_a = area,
         .stride_b = area,
         .stride_c = area});
  }

  // a X + B X, or a X + X B of a tall X
  void next(Tensor& to, const Tensor& x, const Tensor& b, double a) const {
    const int64_t n = m_.shorter(), square = n * n, area = m_.rows * m_.cols;
    cuda::convert(to, x);
    run(to, tall_ ? x : b, tall_ ? b : x,
        {.m = m_.rows,
         .n = m_.cols,
         .k = n,
         .beta = a,
         .batch = m_.count,
         .stride_a = tall_ ? area : square,
         .stride_b = tall_ ? square : area,
         .stride_c = area});
  }

 private:
  static void run(Tensor& to, const Tensor& a, const Tensor& b, const BlasProduct& p) {
    gemm(to, a, b, p, nullptr);
  }

  MatrixBatch m_;
  bool tall_;
};

}  // namespace

void polar(Tensor& out, const Tensor& in, DType compute, const PolarForm& form) {
  const MatrixBatch batch = matrix_batch("polar", in);
  if (form.iterations.empty()) return normalise(out, in, batch, form);
  const int64_t side = batch.shorter();
  const Shape square{batch.count, side, side};
  Tensor x = in.like(in.shape(), compute, "polar"), other = x.like("polar"),
         gram = in.like(square, compute, "polar"), b = gram.like("polar");
  normalise(x, in, batch, form);
  const Products products(batch);
  for (const PolarForm::Iteration& f : form.iterations) {
    products.gram(gram, x);
    products.polynomial(b, gram, f.b, f.c);
    const bool last = &f == &form.iterations.back();
    products.next(last ? out : other, x, b, f.a);
    std::swap(x, other);
  }
}

}  // namespace anabranch::cuda
