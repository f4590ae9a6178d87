#include <algorithm>
#include <type_traits>
#include <vector>

#include <oneapi/dnnl/dnnl.h>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/gemm.h"

// oneDNN exports this next to dnnl_sgemm, for its own benchmark, but its headers leave it out. It
// is faster than the matmul primitive at every shape of ours (a transposed operand by 20%, rows
// that are not packed by 50%), needs no engine, and writes where it is told to.
extern "C" dnnl_status_t DNNL_API dnnl_gemm_bf16bf16f32(  // NOLINT(readability-identifier-naming)
    char transa, char transb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha, const void* a,
    dnnl_dim_t lda, const void* b, dnnl_dim_t ldb, float beta, float* c, dnnl_dim_t ldc);

namespace anabranch::cpu {
namespace {

char letter(bool transposed) { return transposed ? 'T' : 'N'; }

void check(dnnl_status_t status, const GemmShape& s) {
  AB_CHECK(status == dnnl_success, "[gemm] oneDNN refused a product of m ", s.m, ", n ", s.n,
           ", k ", s.k, " with status ", static_cast<int>(status));
}

// The product of matrices without an inner axis.
void clear(float* c, const GemmShape& s) {
  for (int64_t i = 0; i < s.m && !s.accumulate; ++i) std::fill_n(c + i * s.ldc, s.n, 0.0F);
}

void product(float* c, const float* a, const float* b, const GemmShape& s) {
  if (s.k == 0) return clear(c, s);
  check(dnnl_sgemm(letter(s.transpose_a), letter(s.transpose_b), s.m, s.n, s.k, 1, a, s.lda, b,
                   s.ldb, s.accumulate ? 1 : 0, c, s.ldc),
        s);
}

AB_CLONES void widen(float* to, const Bf16* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = float(from[i]);
}

std::vector<float> widened(const Bf16* from, int64_t rows, int64_t columns, int64_t stride) {
  std::vector<float> to(static_cast<size_t>(rows * columns));
  parallel_for(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      widen(to.data() + r * columns, from + r * stride, columns);
    }
  });
  return to;
}

void product(float* c, const Bf16* a, const Bf16* b, const GemmShape& s) {
  if (s.k == 0) return clear(c, s);
  const dnnl_status_t status =
      dnnl_gemm_bf16bf16f32(letter(s.transpose_a), letter(s.transpose_b), s.m, s.n, s.k, 1, a,
                            s.lda, b, s.ldb, s.accumulate ? 1 : 0, c, s.ldc);
  if (status != dnnl_unimplemented) return check(status, s);
  // A CPU without AVX-512: slow but right.
  const auto [a_rows, a_columns] = s.transpose_a ? std::pair(s.k, s.m) : std::pair(s.m, s.k);
  const auto [b_rows, b_columns] = s.transpose_b ? std::pair(s.n, s.k) : std::pair(s.k, s.n);
  GemmShape packed = s;
  packed.lda = a_columns;
  packed.ldb = b_columns;
  product(c, widened(a, a_rows, a_columns, s.lda).data(),
          widened(b, b_rows, b_columns, s.ldb).data(), packed);
}

constexpr int64_t kTileRows = 4, kTileColumns = 32;

// A tile of float64 products; op(a)'s element (i, l) is a[i * row_step + l * step].
struct Tile {
  double* c;
  const double *a, *b;
  int64_t row_step, step, ldb, ldc, k;
  bool accumulate;
};

AB_CLONES void whole_tile(const Tile& t) {
  double sums[kTileRows][kTileColumns] = {};
  for (int64_t l = 0; l < t.k; ++l) {
    for (int64_t r = 0; r < kTileRows; ++r) {
      const double factor = t.a[r * t.row_step + l * t.step];
      for (int64_t j = 0; j < kTileColumns; ++j) sums[r][j] += factor * t.b[l * t.ldb + j];
    }
  }
  for (int64_t r = 0; r < kTileRows; ++r) {
    double* to = t.c + r * t.ldc;
    for (int64_t j = 0; j < kTileColumns; ++j) {
      to[j] = t.accumulate ? to[j] + sums[r][j] : sums[r][j];
    }
  }
}

AB_CLONES void part_tile(const Tile& t, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    double sums[kTileColumns] = {};
    for (int64_t l = 0; l < t.k; ++l) {
      const double factor = t.a[r * t.row_step + l * t.step];
      for (int64_t j = 0; j < columns; ++j) sums[j] += factor * t.b[l * t.ldb + j];
    }
    double* to = t.c + r * t.ldc;
    for (int64_t j = 0; j < columns; ++j) to[j] = t.accumulate ? to[j] + sums[j] : sums[j];
  }
}

void product(double* c, const double* a, const double* b, const GemmShape& s) {
  std::vector<double> turned;
  int64_t ldb = s.ldb;
  if (s.transpose_b) {
    turned.resize(static_cast<size_t>(s.k * s.n));
    for (int64_t j = 0; j < s.n; ++j) {
      for (int64_t l = 0; l < s.k; ++l) {
        turned[static_cast<size_t>(l * s.n + j)] = b[j * s.ldb + l];
      }
    }
    b = turned.data();
    ldb = s.n;
  }
  const int64_t row_step = s.transpose_a ? 1 : s.lda, step = s.transpose_a ? s.lda : 1;
  parallel_for(s.m, kTileRows, [=](int64_t begin, int64_t end) {
    for (int64_t j = 0; j < s.n; j += kTileColumns) {
      const int64_t columns = std::min(kTileColumns, s.n - j);
      for (int64_t i = begin; i < end; i += kTileRows) {
        const int64_t rows = std::min(kTileRows, end - i);
        const Tile tile{c + i * s.ldc + j, a + i * row_step, b + j, row_step, step, ldb, s.ldc, s.k,
                        s.accumulate};
        if (rows == kTileRows && columns == kTileColumns) {
          whole_tile(tile);
        } else {
          part_tile(tile, rows, columns);
        }
      }
    }
  });
}

AB_CLONES void add_row(float* to, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += bias[i];
}

void add_row(double* to, const double* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += bias[i];
}

AB_CLONES void round_row(Bf16* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Bf16(from[i]);
}

AB_CLONES void round_row(Bf16* to, const float* from, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Bf16(from[i] + bias[i]);
}

AB_CLONES void add_rounded(Bf16* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Bf16(float(to[i]) + from[i]);
}

constexpr int64_t kRowGrain = 16;

// Into bf16: sums of some rows in float, then those are rounded.
void finish(Bf16* c, const Bf16* a, const Bf16* b, const GemmShape& s, const GemmEnd<float>& end) {
  Tensor buffer({std::min(kGemmRows, s.m), s.n}, DType::kF32, end.pool, "product");
  auto* sums = buffer.data<float>();
  for (int64_t first = 0; first < s.m; first += kGemmRows) {
    GemmShape block = s;
    block.m = std::min(kGemmRows, s.m - first);
    block.ldc = s.n;
    block.accumulate = false;
    product(sums, a + first * (s.transpose_a ? 1 : s.lda), b, block);
    parallel_for(block.m, kRowGrain, [=, &s, &end](int64_t from, int64_t to) {
      for (int64_t r = from; r < to; ++r) {
        float* row = sums + r * s.n;
        Bf16* out = c + (first + r) * s.ldc;
        if (s.accumulate) {
          if (end.bias != nullptr) add_row(row, end.bias, s.n);
          add_rounded(out, row, s.n);
        } else if (end.bias != nullptr) {
          round_row(out, row, end.bias, s.n);
        } else {
          round_row(out, row, s.n);
        }
        if (end.after != nullptr) (*end.after)(first + r, first + r + 1);
      }
    });
  }
}

template <class Out, class In>
void finish(Out* c, const In* a, const In* b, const GemmShape& s, const GemmEnd<Out>& end) {
  product(c, a, b, s);
  if (end.bias == nullptr && end.after == nullptr) return;
  parallel_for(s.m, kRowGrain, [=, &s, &end](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      if (end.bias != nullptr) add_row(c + r * s.ldc, end.bias, s.n);
      if (end.after != nullptr) (*end.after)(r, r + 1);
    }
  });
}

}  // namespace

template <class In, class Out>
void gemm(Out* c, const In* a, const In* b, GemmShape s, const GemmEnd<Accumulator<In>>& end) {
  if (s.m == 0 || s.n == 0) return;
  if (s.lda == 0) s.lda = s.transpose_a ? s.m : s.k;
  if (s.ldb == 0) s.ldb = s.transpose_b ? s.k : s.n;
  if (s.ldc == 0) s.ldc = s.n;
  finish(c, a, b, s, end);
}

template void gemm(float*, const float*, const float*, GemmShape, const GemmEnd<float>&);
template void gemm(float*, const Bf16*, const Bf16*, GemmShape, const GemmEnd<float>&);
template void gemm(Bf16*, const Bf16*, const Bf16*, GemmShape, const GemmEnd<float>&);
template void gemm(double*, const double*, const double*, GemmShape, const GemmEnd<double>&);

}  // namespace anabranch::cpu
