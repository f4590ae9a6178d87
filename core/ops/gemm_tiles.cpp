#include "core/ops/gemm_tiles.h"

#include <algorithm>
#include <type_traits>

namespace anabranch::cpu {
namespace {

// The library has other kernels for so few rows, whose sums differ in their last bits; a product
// with fewer is one of so many, of which the others are zero.
constexpr int64_t kLeastRows = 16;

// What the library's kernels work on at once, of rows and of columns.
constexpr int64_t kUnitM = 8, kUnitN = 48;

// How long a sum may be for the library to make it in one go whatever the rows and columns; longer
// float ones it would cut by these.
constexpr int64_t kInner = 384;

struct Piece {
  size_t product;
  int64_t row, rows, column, columns;
  int64_t middle;  // of its work, counted from the start of all
};

int64_t parts_of(int64_t n, int64_t most) { return (n + most - 1) / most; }

// The length of the equal parts, whole multiples of `unit`, that `n` is cut into.
int64_t part_of(int64_t n, int64_t most, int64_t unit) {
  const int64_t parts = parts_of(n, most), even = parts_of(n, parts);
  return (even + unit - 1) / unit * unit;
}

// The most rows of a tile. It depends on all products, but what an element is does not depend on
// it.
template <class In, class Out>
int64_t tile_rows(const std::vector<TiledProduct<In, Out>>& products) {
  constexpr int64_t kEnough = 16;
  int64_t tiles = 0;
  for (const TiledProduct<In, Out>& p : products) {
    tiles += parts_of(p.shape.m, kTileM) * parts_of(p.shape.n, kTileN);
  }
  return tiles >= kEnough ? kTileM : kFewerM;
}

// Appends the pieces of a product; returns the work up to its end.
int64_t cut(std::vector<Piece>& to, size_t product, const GemmShape& s, int64_t most_rows,
            int64_t before) {
  if (s.m == 0 || s.n == 0) return before;
  const bool symmetric = most_rows == kTileSymmetric;
  const int64_t rows = part_of(s.m, most_rows, symmetric ? kUnitN : kUnitM);
  const int64_t columns = symmetric ? rows : part_of(s.n, kTileN, kUnitN);
  for (int64_t row = 0; row < s.m; row += rows) {
    for (int64_t column = symmetric ? row : 0; column < s.n; column += columns) {
      Piece piece{product, row, std::min(rows, s.m - row), column, std::min(columns, s.n - column),
                  0};
      const int64_t work =
          std::max(piece.rows, kLeastRows) * piece.columns * std::max<int64_t>(s.k, 1);
      piece.middle = before + work / 2;
      before += work;
      to.push_back(piece);
    }
  }
  return before;
}

template <class T>
void copy_rows(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_step, n, to + r * to_step);
}

// A product by sums of kInner elements, added in their order.
template <class In, class Out>
void sum_up(const TiledProduct<In, Out>& p, const std::shared_ptr<Pool>& pool) {
  const int64_t length = std::is_same_v<In, float> ? kInner : std::max<int64_t>(p.shape.k, 1);
  GemmShape s = p.shape;
  int64_t first = 0;
  do {
    s.k = std::min(length, p.shape.k - first);
    s.accumulate = p.shape.accumulate || first > 0;
    gemm<In, Out>(p.c, p.a + first * (s.transpose_a ? s.lda : 1),
                  p.b + first * (s.transpose_b ? 1 : s.ldb), s, {nullptr, nullptr, pool});
    first += s.k;
  } while (first < p.shape.k);
}

// A product of fewer than kLeastRows rows.
template <class In, class Out>
void padded(const TiledProduct<In, Out>& p, const std::shared_ptr<Pool>& pool) {
  GemmShape s = p.shape;
  Tensor rows({kLeastRows, s.k}, kDTypeOf<In>, pool, "padded rows"),
      sums({kLeastRows, s.n}, kDTypeOf<Out>, pool, "padded product");
  rows.fill_zero();
  sums.fill_zero();
  copy_rows(rows.data<In>(), s.k, p.a, s.lda, s.m, s.k);
  if (s.accumulate) copy_rows(sums.data<Out>(), s.n, p.c, s.ldc, s.m, s.n);
  const int64_t m = s.m, ldc = s.ldc;
  s.m = kLeastRows;
  s.lda = s.k;
  s.ldc = s.n;
  sum_up<In, Out>({sums.data<Out>(), rows.data<In>(), p.b, s}, pool);
  copy_rows(p.c, ldc, sums.data<Out>(), s.n, m, s.n);
}

// The tile of a symmetric matrix of `n` columns, copied to the other side of the diagonal.
template <class Out>
void mirror(Out* c, int64_t n, const Piece& tile) {
  constexpr int64_t kSquare = 16;
  const int64_t last_row = tile.row + tile.rows, last_column = tile.column + tile.columns;
  for (int64_t row = tile.row; row < last_row; row += kSquare) {
    for (int64_t column = tile.column; column < last_column; column += kSquare) {
      for (int64_t j = column; j < std::min(column + kSquare, last_column); ++j) {
        for (int64_t i = row; i < std::min(row + kSquare, last_row); ++i)
          c[j * n + i] = c[i * n + j];
      }
    }
  }
}

template <class In, class Out>
void run(const TiledProduct<In, Out>& whole, const Piece& piece,
         const std::shared_ptr<Pool>& pool) {
  TiledProduct<In, Out> part = whole;
  GemmShape& s = part.shape;
  if (s.lda == 0) s.lda = s.transpose_a ? s.m : s.k;
  if (s.ldb == 0) s.ldb = s.transpose_b ? s.k : s.n;
  if (s.ldc == 0) s.ldc = s.n;
  part.c += piece.row * s.ldc + piece.column;
  part.a += piece.row * (s.transpose_a ? 1 : s.lda);
  part.b += piece.column * (s.transpose_b ? s.ldb : 1);
  s.m = piece.rows;
  s.n = piece.columns;
  if (s.m < kLeastRows && !s.transpose_a) return padded(part, pool);
  sum_up(part, pool);
  if (whole.symmetric && piece.row != piece.column) mirror(whole.c, s.ldc, piece);
}

}  // namespace

template <class In, class Out>
void gemm_tiles(const std::vector<TiledProduct<In, Out>>& products,
                const std::shared_ptr<Pool>& pool) {
  std::vector<Piece> pieces;
  int64_t work = 0;
  const int64_t rows = tile_rows(products);
  for (size_t i = 0; i < products.size(); ++i) {
    const TiledProduct<In, Out>& p = products[i];
    work = cut(pieces, i, p.shape, p.symmetric ? kTileSymmetric : rows, work);
  }
  const auto before = [](const Piece& piece, int64_t at) { return piece.middle < at; };
  parallel_for(work, 1, [&](int64_t begin, int64_t end) {
    const OneThread alone;
    auto piece = std::lower_bound(pieces.begin(), pieces.end(), begin, before);
    for (; piece != pieces.end() && piece->middle < end; ++piece) {
      run(products[piece->product], *piece, pool);
    }
  });
}

template void gemm_tiles(const std::vector<TiledProduct<float, float>>&,
                         const std::shared_ptr<Pool>&);
template void gemm_tiles(const std::vector<TiledProduct<Bf16, float>>&,
                         const std::shared_ptr<Pool>&);
template void gemm_tiles(const std::vector<TiledProduct<Bf16, Bf16>>&,
                         const std::shared_ptr<Pool>&);
template void gemm_tiles(const std::vector<TiledProduct<double, double>>&,
                         const std::shared_ptr<Pool>&);

}  // namespace anabranch::cpu
