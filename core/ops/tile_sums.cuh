// What a block keeps of a tile of a matrix product: rectangles of both matrices in shared memory,
// and the tile's sums. bfloat16 on tensor cores, float and double by multiply-adds.
#pragma once

#include <mma.h>
#include <type_traits>

#include "core/cuda/reduce.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {

// c [rows, columns] (+)= op(a) op(b) for one tile: op(a) [rows, inner], op(b) [inner, columns],
// each stored as it is or transposed, with `ld` elements from row to row. All pointers are the
// tile's.
template <class T, class Out>
struct ProductTile {
  Out* c;
  const T *a, *b;
  int64_t ldc, lda, ldb;
  int64_t inner;
  int rows, columns;
  bool accumulate;
};

inline constexpr int kTileThreads = 256;

// How a block works: tiles of c are kM x kN, kInner of the inner index at a time, of which kStages
// are on their way into shared memory.
template <class T>
struct TileShape {
  static constexpr int kM = 64, kN = 64, kInner = 16, kStages = 2;
};

template <>
struct TileShape<Bf16> {
  static constexpr int kM = 128, kN = 128, kInner = 32, kStages = 4;
};

// A rectangle of a matrix in shared memory, as it lies in the matrix. Rows are 16 bytes longer than
// their elements, so that those of a column are in different banks.
template <class T, int kRowsOf, int kColumnsOf>
struct Staged {
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf, kStride = kColumns + kPack<T>;
  static constexpr int kCount = kRows * kStride;

  // Begins to copy the `rows` x `columns` elements that exist; the others become zero.
  template <bool kPacks>
  static __device__ __forceinline__ void fetch(T* to, const T* from, int64_t ld, int rows,
                                               int columns) {
    constexpr int kN = kPacks ? kPack<T> : 1, kInRow = kColumns / kN;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kInRow; i += kTileThreads) {
      const int row = i / kInRow, column = i % kInRow * kN;
      T* at = to + row * kStride + column;
      if (row >= rows || column >= columns) {
        store(at, Pack<T, kN>{});
      } else if constexpr (kPacks) {
        copy_async<16>(at, from + row * ld + column);
      } else {
        *at = from[row * ld + column];
      }
    }
  }
};

template <class T, bool kTransposed>
using StagedA = std::conditional_t<kTransposed, Staged<T, TileShape<T>::kInner, TileShape<T>::kM>,
                                   Staged<T, TileShape<T>::kM, TileShape<T>::kInner>>;
template <class T, bool kTransposed>
using StagedB = std::conditional_t<kTransposed, Staged<T, TileShape<T>::kN, TileShape<T>::kInner>,
                                   Staged<T, TileShape<T>::kInner, TileShape<T>::kN>>;

// The sums of a tile, of which a thread has 4 x 4 that are 16 rows or columns apart.
template <class T, bool kTransposeA, bool kTransposeB>
class TileSums {
 public:
  static constexpr size_t kStagingBytes = 0;

  __device__ __forceinline__ void add(const T* a, const T* b) {
    using A = StagedA<T, kTransposeA>;
    using B = StagedB<T, kTransposeB>;
    for (int l = 0; l < TileShape<T>::kInner; ++l) {
      T left[4], right[4];
      for (int i = 0; i < 4; ++i) {
        const int row = row_of(i), column = column_of(i);
        left[i] = kTransposeA ? a[l * A::kStride + row] : a[row * A::kStride + l];
        right[i] = kTransposeB ? b[column * B::kStride + l] : b[l * B::kStride + column];
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sums_[i][j] += left[i] * right[j];
      }
    }
  }

  template <bool kPacks, class Out>
  __device__ __forceinline__ void write(const ProductTile<T, Out>& tile, T* /*staging*/) const {
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        if (row_of(i) >= tile.rows || column_of(j) >= tile.columns) continue;
        Out& to = tile.c[row_of(i) * tile.ldc + column_of(j)];
        to = tile.accumulate ? to + sums_[i][j] : sums_[i][j];
      }
    }
  }

 private:
  static __device__ int row_of(int i) { return static_cast<int>(threadIdx.x) / 16 + 16 * i; }

  static __device__ int column_of(int j) { return static_cast<int>(threadIdx.x) % 16 + 16 * j; }

  T sums_[4][4] = {};
};

// On tensor cores: a warp has 32 x 64 of the sums, 4 warps below and 2 beside each other.
template <bool kTransposeA, bool kTransposeB>
class TileSums<Bf16, kTransposeA, kTransposeB> {
  using Shape = TileShape<Bf16>;
  static constexpr int kStagingStride = Shape::kN + 4;  // floats

 public:
  static constexpr size_t kStagingBytes = Shape::kM * kStagingStride * sizeof(float);

  __device__ __forceinline__ TileSums() {
    for (auto& row : sums_) {
      for (auto& sum : row) nvcuda::wmma::fill_fragment(sum, 0.0F);
    }
  }

  __device__ __forceinline__ void add(const Bf16* a, const Bf16* b) {
    using A = StagedA<Bf16, kTransposeA>;
    using B = StagedB<Bf16, kTransposeB>;
    for (int l = 0; l < Shape::kInner; l += 16) {
      Left left[kDown];
      for (int i = 0; i < kDown; ++i) {
        const int row = first_row() + 16 * i;
        const Bf16* from = kTransposeA ? a + l * A::kStride + row : a + row * A::kStride + l;
        nvcuda::wmma::load_matrix_sync(left[i], as_cuda(from), A::kStride);
      }
      for (int j = 0; j < kBeside; ++j) {
        const int column = first_column() + 16 * j;
        const Bf16* from = kTransposeB ? b + column * B::kStride + l : b + l * B::kStride + column;
        Right right;
        nvcuda::wmma::load_matrix_sync(right, as_cuda(from), B::kStride);
        for (int i = 0; i < kDown; ++i) {
          nvcuda::wmma::mma_sync(sums_[i][j], left[i], right, sums_[i][j]);
        }
      }
    }
  }

  // By way of shared memory, so that rows of c are written whole.
  template <bool kPacks, class Out>
  __device__ __forceinline__ void write(const ProductTile<Bf16, Out>& tile, Bf16* shared) const {
    auto* staging = reinterpret_cast<float*>(shared);
    for (int i = 0; i < kDown; ++i) {
      for (int j = 0; j < kBeside; ++j) {
        const int row = first_row() + 16 * i, column = first_column() + 16 * j;
        nvcuda::wmma::store_matrix_sync(staging + row * kStagingStride + column, sums_[i][j],
                                        kStagingStride, nvcuda::wmma::mem_row_major);
      }
    }
    __syncthreads();
    constexpr int kN = kPacks ? 8 : 1, kInRow = Shape::kN / kN;
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kM * kInRow; i += kTileThreads) {
      const int row = i / kInRow, column = i % kInRow * kN;
      if (row >= tile.rows || column >= tile.columns) continue;
      const auto sums = load<kN>(staging + row * kStagingStride + column);
      Out* to = tile.c + row * tile.ldc + column;
      Pack<Out, kN> out;
      if (tile.accumulate) out = load<kN>(to);
      for (int e = 0; e < kN; ++e) {
        out.v[e] = narrow<Out>(tile.accumulate ? wide(out.v[e]) + sums.v[e] : sums.v[e]);
      }
      store(to, out);
    }
  }

 private:
  template <bool kTransposed>
  using Layout = std::conditional_t<kTransposed, nvcuda::wmma::col_major, nvcuda::wmma::row_major>;
  using Left = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16,
                                      Layout<kTransposeA>>;
  using Right = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16,
                                       Layout<kTransposeB>>;
  using Sum = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
  static constexpr int kDown = 2, kBeside = 4;

  static const __device__ __nv_bfloat16* as_cuda(const Bf16* p) {
    return reinterpret_cast<const __nv_bfloat16*>(p);
  }

  static __device__ int first_row() {
    return static_cast<int>(threadIdx.x) / kWarp % 4 * (16 * kDown);
  }

  static __device__ int first_column() {
    return static_cast<int>(threadIdx.x) / kWarp / 4 * (16 * kBeside);
  }

  Sum sums_[kDown][kBeside];
};

}  // namespace anabranch::cuda
