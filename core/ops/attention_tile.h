// The arithmetic of blocked attention on one tile: `keys` x `queries` scores, held transposed.
//
// Scores are stored with the queries side by side (S^T: a row is a key, a lane is a query). The
// running maximum, the sums and the masks of the online softmax are then lane by lane, with no sum
// across a vector, and all seven products of attention have the one form below, with no operand
// transposed between them. All pointers to b, c, scores and statistics are aligned to 64 bytes and
// their strides are multiples of kVector<A>.
#pragma once

#include <cstdint>

namespace anabranch::cpu {

// Elements of one 64-byte vector, queries of a tile, keys of a tile.
template <class A>
inline constexpr int64_t kVector = 64 / static_cast<int64_t>(sizeof(A));
template <class A>
inline constexpr int64_t kQueryTile = 4 * kVector<A>;
inline constexpr int64_t kKeyTile = 64;

// c[m, n] = or += sum_k a(i, k) b[k, n]
template <class A>
struct Product {
  int64_t m, n, k;  // n: a multiple of kVector<A>
  const A* a;
  int64_t a_stride;
  const A* b;
  int64_t b_stride;
  A* c;
  int64_t c_stride;
  bool accumulate;
};

// With a(i, k) = a[i * a_stride + k].
void multiply_rows(const Product<float>& p);
void multiply_rows(const Product<double>& p);
// With a(i, k) = a[k * a_stride + i].
void multiply_columns(const Product<float>& p);
void multiply_columns(const Product<double>& p);

// A tile of scores in units of log 2, [keys, kQueryTile], of which the first `lanes` columns are
// used. Key j is seen by lane i if first[i] <= j + offset <= last[i]; the others may hold anything.
template <class A>
struct Scores {
  A* s;
  int64_t keys, lanes;       // lanes: a multiple of kVector<A>
  int64_t offset;            // position of the first key minus that of the first query
  const A* first = nullptr;  // [lanes] whole numbers that do not decrease; null: no such bound
  const A* last = nullptr;   // the same; null: i. Not without `first`
};

// Scores::first or last of `rows` queries from their first or last keys; the first query is at key
// `place`. Lanes beyond them repeat the last.
template <class A>
void load_bounds(A* to, const int32_t* key, int64_t rows, int64_t place) {
  for (int64_t i = 0; i < kQueryTile<A>; ++i) {
    to[i] = static_cast<A>(key[i < rows ? i : rows - 1] - place);
  }
}

// One step of the online softmax:
//   m' = max(m, max_j s_j),  s_j = 2^(s_j - m'),  alpha = 2^(m - m'),  l = alpha l + sum_j s_j,
//   m = m', with s_j = 0 where key j is not seen.
// Returns whether any alpha differs from 1.
bool softmax_step(const Scores<float>& tile, float* m, float* l, float* alpha);
bool softmax_step(const Scores<double>& tile, double* m, double* l, double* alpha);

// The backward of the softmax: s = 2^(s - lse), ds = s (dp - delta) written over dp; both 0 where
// the key is not seen. `dp` has the layout of s; `lse` is in units of log 2.
void softmax_gradient(const Scores<float>& tile, float* dp, const float* lse, const float* delta);
void softmax_gradient(const Scores<double>& tile, double* dp, const double* lse,
                      const double* delta);

// x[r, i] *= scale[i] for `rows` rows of `lanes` elements, kQueryTile apart.
void scale_lanes(float* x, int64_t rows, int64_t lanes, const float* scale);
void scale_lanes(double* x, int64_t rows, int64_t lanes, const double* scale);

}  // namespace anabranch::cpu
