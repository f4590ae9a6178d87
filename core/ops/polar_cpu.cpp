#include <cmath>
#include <memory>
#include <utility>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/gemm_tiles.h"
#include "core/ops/matrix_batch.h"
#include "core/ops/polar.h"
#include "core/ops/squared_norm.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;

template <class A>
[[gnu::always_inline]] inline void polynomial(A* square, const A* gram, int64_t n, A b, A c) {
  for (int64_t i = 0; i < n; ++i) square[i] = b * gram[i] + c * square[i];
}

AB_CLONES void polynomial_range(float* square, const float* gram, int64_t n, float b, float c) {
  polynomial(square, gram, n, b, c);
}

AB_CLONES void polynomial_range(double* square, const double* gram, int64_t n, double b, double c) {
  polynomial(square, gram, n, b, c);
}

// gram <- b gram + c square
AB_CLONES void polynomial_range(Bf16* __restrict gram, const float* __restrict square, int64_t n,
                                float b, float c) {
  for (int64_t i = 0; i < n; ++i) gram[i] = Bf16(b * float(gram[i]) + c * square[i]);
}

AB_CLONES void scaled_range(Bf16* __restrict to, const float* __restrict from, int64_t n,
                            float factor) {
  for (int64_t i = 0; i < n; ++i) to[i] = Bf16(from[i] * factor);
}

AB_CLONES void scaled_range(float* to, const float* from, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
}

AB_CLONES void scaled_range(double* to, const double* from, int64_t n, double factor) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
}

// x <- a x + product
AB_CLONES void next_range(Bf16* __restrict x, const float* __restrict product, int64_t n, float a) {
  for (int64_t i = 0; i < n; ++i) x[i] = Bf16(a * float(x[i]) + product[i]);
}

// product <- a x + product
AB_CLONES void last_range(float* __restrict product, const Bf16* __restrict x, int64_t n, float a) {
  for (int64_t i = 0; i < n; ++i) product[i] += a * float(x[i]);
}

template <class To, class A>
void scaled(To* to, const A* from, int64_t n, A factor) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
    scaled_range(to + begin, from + begin, end - begin, factor);
  });
}

// The products of an iteration: of one matrix, with the Gram matrix of its short side.
template <class T>
class Products {
 public:
  using A = Accumulator<T>;

  Products(const MatrixBatch& m, std::shared_ptr<Pool> pool)
      : tall_(m.rows > m.cols), long_(m.longer()), short_(m.shorter()), pool_(std::move(pool)) {}

  // X X^T, or X^T X of a tall X
  void gram(A* to, const T* x) const {
    const GemmShape shape{
        .m = short_, .n = short_, .k = long_, .transpose_a = tall_, .transpose_b = !tall_};
    gemm_tiles<T, A>({{to, x, x, shape, true}}, pool_);
  }

  void square(A* to, const T* gram) const {
    const GemmShape shape{.m = short_, .n = short_, .k = short_};
    gemm_tiles<T, A>({{to, gram, gram, shape, true}}, pool_);
  }

  // B X, or X B of a tall X
  void apply(A* to, const T* b, const T* x) const {
    if (tall_) {
      product(to, x, b, {.m = long_, .n = short_, .k = short_});
    } else {
      product(to, b, x, {.m = short_, .n = long_, .k = short_});
    }
  }

 private:
  void product(A* to, const T* a, const T* b, const GemmShape& shape) const {
    gemm_tiles<T, A>({{to, a, b, shape}}, pool_);
  }

  bool tall_;
  int64_t long_, short_;
  std::shared_ptr<Pool> pool_;
};

// float32 or float64: X in `out` and a buffer by turns, so that the last one is in `out`.
template <class A>
void iterate(Tensor& out, const Tensor& in, const MatrixBatch& m, const PolarForm& form, A inverse,
             A /*type*/) {
  const Products<A> products(m, out.pool());
  const int64_t side = m.shorter();
  Tensor other = out.like("polar"), a = out.like({side, side}, out.dtype(), "polar"),
         b = out.like({side, side}, out.dtype(), "polar");
  A *x = out.data<A>(), *next = other.data<A>(), *gram = a.data<A>(), *square = b.data<A>();
  if (form.iterations.size() % 2 == 1) std::swap(x, next);
  scaled(x, in.data<A>(), in.count(), inverse);
  for (const PolarForm::Iteration& f : form.iterations) {
    products.gram(gram, x);
    products.square(square, gram);
    parallel_for(side * side, kGrain, [=](int64_t begin, int64_t end) {
      polynomial_range(square + begin, gram + begin, end - begin, A(f.b), A(f.c));
    });
    for (int64_t i = 0; i < side; ++i) square[i * side + i] += A(f.a);
    products.apply(next, square, x);
    std::swap(x, next);
  }
}

// bfloat16: X in a buffer, products in `out`.
void iterate(Tensor& out, const Tensor& in, const MatrixBatch& m, const PolarForm& form,
             float inverse, Bf16 /*type*/) {
  auto* product = out.data<float>();
  if (form.iterations.empty()) return scaled(product, in.data<float>(), in.count(), inverse);
  const Products<Bf16> products(m, out.pool());
  const int64_t side = m.shorter(), n = in.count();
  Tensor of_x = out.like(out.shape(), DType::kBF16, "polar"),
         of_gram = out.like({side, side}, DType::kBF16, "polar"),
         of_sums = out.like({side, side}, DType::kF32, "polar");
  Bf16 *x = of_x.data<Bf16>(), *gram = of_gram.data<Bf16>();
  auto* sums = of_sums.data<float>();
  scaled(x, in.data<float>(), n, inverse);
  for (const PolarForm::Iteration& f : form.iterations) {
    const auto a = static_cast<float>(f.a), b = static_cast<float>(f.b),
               c = static_cast<float>(f.c);
    products.gram(sums, x);
    scaled(gram, sums, side * side, 1.0F);
    products.square(sums, gram);
    parallel_for(side * side, kGrain, [=](int64_t begin, int64_t end) {
      polynomial_range(gram + begin, sums + begin, end - begin, b, c);
    });
    products.apply(product, gram, x);
    const bool last = &f == &form.iterations.back();
    parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
      if (last) {
        last_range(product + begin, x + begin, end - begin, a);
      } else {
        next_range(x + begin, product + begin, end - begin, a);
      }
    });
  }
}

}  // namespace

void polar(Tensor& out, const Tensor& in, DType compute, const PolarForm& form) {
  const MatrixBatch batch = matrix_batch("polar", in);
  each_matrix(batch, [&](int64_t i) {
    Tensor to = batch.at(out, i);
    const Tensor from = batch.at(in, i);
    dispatch(compute, [&]<class T>() {
      using A = Accumulator<T>;
      const A inverse = A(1 / (form.scale * std::sqrt(cpu::squared_norm(from)) + form.eps));
      iterate(to, from, batch, form, inverse, T{});
    });
  });
}

}  // namespace anabranch::cpu
