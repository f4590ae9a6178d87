// What a block keeps of a tile of a matrix product: rectangles of both matrices in shared memory,
// and the tile's sums. bfloat16 on tensor cores, float and double by multiply-adds.
#pragma once

#include <mma.h>
#include <type_traits>

#include "core/ops/mma.cuh"
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

// How a block of kThreads works: tiles of c are kM x kN, kInner of the inner index at a time, of
// which kStages are on their way into shared memory.
template <class T>
struct TileShape {
  static constexpr int kThreads = 256, kM = 64, kN = 64, kInner = 16, kStages = 2;
};

template <>
struct TileShape<Bf16> {
  static constexpr int kThreads = 128, kM = 128, kN = 128, kInner = 32, kStages = 4;
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
    constexpr int kN = kPacks ? kPack<T> : 1, kAcross = kColumns / kN;
    constexpr int kDown = TileShape<T>::kThreads / kAcross;  // kDown x kAcross threads
    static_assert(TileShape<T>::kThreads % kAcross == 0 && kRows % kDown == 0);
    const int row = static_cast<int>(threadIdx.x) / kAcross;
    const int column = static_cast<int>(threadIdx.x) % kAcross * kN;
    const int below = column < columns ? rows - row : 0;
    T* at = to + row * kStride + column;
    from += row * ld + column;
#pragma unroll(kPacks ? kRows / kDown : 4)
    for (int r = 0; r < kRows; r += kDown, at += kDown * kStride, from += kDown * ld) {
      if constexpr (kPacks) {
        copy_async_or_zero<16>(at, from, r < below);
      } else {
        *at = r < below ? *from : T{};
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

// On tensor cores: a warp has 64 x 64 of the sums, of which 4 x 4 tiles share the factors loaded.
template <bool kTransposeA, bool kTransposeB>
class TileSums<Bf16, kTransposeA, kTransposeB> {
  using Shape = TileShape<Bf16>;
  static constexpr int kStagingStride = Shape::kN + 4;  // floats

 public:
  static constexpr size_t kStagingBytes = Shape::kM * kStagingStride * sizeof(float);

  __device__ __forceinline__ TileSums() {
    for (auto& row : sums_) {
      for (auto& sum : row) sum = zero_sum<Bf16>();
    }
  }

  __device__ __forceinline__ void add(const Bf16* a, const Bf16* b) {
    using A = StagedA<Bf16, kTransposeA>;
    using B = StagedB<Bf16, kTransposeB>;
#pragma unroll
    for (int l = 0; l < Shape::kInner; l += kTile) {
      Left<Bf16, kOrderA> left[kDown];
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        const int row = first_row() + kTile * i;
        const Bf16* from = kTransposeA ? a + l * A::kStride + row : a + row * A::kStride + l;
        left[i] = load_left<Bf16, kOrderA>(from, A::kStride);
      }
#pragma unroll
      for (int j = 0; j < kBeside; ++j) {
        const int column = first_column() + kTile * j;
        const Bf16* from = kTransposeB ? b + column * B::kStride + l : b + l * B::kStride + column;
        const auto right = load_right<Bf16, kOrderB>(from, B::kStride);
#pragma unroll
        for (int i = 0; i < kDown; ++i) {
          multiply_add<Bf16, kOrderB, kOrderA>(sums_[i][j], left[i], right);
        }
      }
    }
  }

  // By way of shared memory, so that rows of c are written whole.
  template <bool kPacks, class Out>
  __device__ __forceinline__ void write(const ProductTile<Bf16, Out>& tile, Bf16* shared) const {
    auto* staging = reinterpret_cast<float*>(shared);
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kBeside; ++j) {
        const int row = first_row() + kTile * i, column = first_column() + kTile * j;
        nvcuda::wmma::store_matrix_sync(staging + row * kStagingStride + column, sums_[i][j],
                                        kStagingStride, nvcuda::wmma::mem_row_major);
      }
    }
    __syncthreads();
    constexpr int kN = kPacks ? 8 : 1, kInRow = Shape::kN / kN;
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kM * kInRow; i += Shape::kThreads) {
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
  static constexpr Order kOrderA = kTransposeA ? Order::kColumns : Order::kRows;
  static constexpr Order kOrderB = kTransposeB ? Order::kColumns : Order::kRows;
  static constexpr int kDown = 4, kBeside = 4;  // tiles of a warp
  static constexpr int kWarpsDown = Shape::kM / (kTile * kDown);
  static constexpr int kWarpsBeside = Shape::kN / (kTile * kBeside);
  static_assert(kWarpsDown * kWarpsBeside * kWarp == Shape::kThreads);

  static __device__ int first_row() {
    return static_cast<int>(threadIdx.x) / kWarp % kWarpsDown * (kTile * kDown);
  }

  static __device__ int first_column() {
    return static_cast<int>(threadIdx.x) / kWarp / kWarpsDown * (kTile * kBeside);
  }

  Sum<Bf16> sums_[kDown][kBeside];
};

}  // namespace anabranch::cuda
