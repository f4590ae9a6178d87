// Products of 16 x 16 tiles by a warp: on tensor cores for bfloat16, with float sums; by plain FMAs
// for float and double. The interface is one, so that a kernel is written once for all types:
//
//   Sum<T> c = zero_sum<T>();
//   multiply_add<T, Order::kRows>(c, load_left<T>(a, stride), load_right<T, Order::kRows>(b,
//   stride));
//
// A tile that is loaded lies in shared memory, aligned to 32 bytes, with rows `stride` elements
// apart, a multiple of 16 bytes that is best 16 bytes more than a multiple of 128: then no two rows
// meet in a bank. All lanes of a warp call together.
#pragma once

#include <mma.h>
#include <type_traits>

#include "core/cuda/reduce.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {

inline constexpr int kTile = 16;

// How a factor lies in memory: b(k, n) at [k * stride + n], or at [n * stride + k]. A left one of
// the FMAs lies by rows.
enum class Order : uint8_t { kRows, kColumns };

// Of the FMAs: lane l holds columns 8 (l % 2) .. of row l / 2.
template <class T>
struct LaneTile {
  T x[8];
};

// Of the FMAs: a right factor is read when it is multiplied with.
template <class T, Order kOrder>
struct TileInMemory {
  const T* at;
  int stride;
};

template <class T>
struct TileTypes {
  using Sum = LaneTile<T>;
  template <Order kOrder>
  using Left = LaneTile<T>;
  template <Order kOrder>
  using Right = TileInMemory<T, kOrder>;
};

template <>
struct TileTypes<Bf16> {
  template <class Use, class E, class... Layout>
  using Fragment = nvcuda::wmma::fragment<Use, kTile, kTile, kTile, E, Layout...>;
  template <Order kOrder>
  using Layout =
      std::conditional_t<kOrder == Order::kRows, nvcuda::wmma::row_major, nvcuda::wmma::col_major>;
  using Sum = Fragment<nvcuda::wmma::accumulator, float>;
  template <Order kOrder>
  using Left = Fragment<nvcuda::wmma::matrix_a, __nv_bfloat16, Layout<kOrder>>;
  template <Order kOrder>
  using Right = Fragment<nvcuda::wmma::matrix_b, __nv_bfloat16, Layout<kOrder>>;
};

// A tile of sums, of a left factor and of a right one. A lane holds 8 elements x[] of the first
// two; see Places.
template <class T>
using Sum = typename TileTypes<T>::Sum;
template <class T, Order kOrder = Order::kRows>
using Left = typename TileTypes<T>::template Left<kOrder>;
template <class T, Order kOrder>
using Right = typename TileTypes<T>::template Right<kOrder>;

template <class T>
__device__ __forceinline__ Sum<T> zero_sum() {
  Sum<T> sum;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum.x[i] = 0;
  return sum;
}

// wmma's own load is not told that the address is one of shared memory and goes piece by piece;
// this form of it is one ldmatrix.
template <class Fragment, class E>
__device__ __forceinline__ void load_fragment(Fragment& f, const E* at, int stride) {
  namespace wmma = nvcuda::wmma;
  if constexpr (kSimulated) {
    wmma::load_matrix_sync(f, reinterpret_cast<const __nv_bfloat16*>(at), stride);
  } else {
    auto* to = reinterpret_cast<unsigned*>(f.x);
    const auto from = static_cast<unsigned>(__cvta_generic_to_shared(at));
    if constexpr (std::is_same_v<Fragment, Left<E, Order::kColumns>>) {
      asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(from), "r"(stride)
                   : "memory");
    } else if constexpr (std::is_same_v<Fragment, Left<E>>) {
      asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(from), "r"(stride)
                   : "memory");
    } else if constexpr (std::is_same_v<Fragment, Right<E, Order::kRows>>) {
      asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(from), "r"(stride)
                   : "memory");
    } else {
      asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(from), "r"(stride)
                   : "memory");
    }
  }
}

template <class T, Order kOrder = Order::kRows>
__device__ __forceinline__ Left<T, kOrder> load_left(const T* at, int stride) {
  if constexpr (std::is_same_v<T, Bf16>) {
    Left<T, kOrder> left;
    load_fragment(left, at, stride);
    return left;
  } else {
    static_assert(kOrder == Order::kRows);
    const int lane = threadIdx.x % kWarp;
    const Pack<T, 8> row = load<8>(at + lane / 2 * stride + lane % 2 * 8);
    Left<T> left;
#pragma unroll
    for (int i = 0; i < 8; ++i) left.x[i] = row.v[i];
    return left;
  }
}

template <class T, Order kOrder>
__device__ __forceinline__ Right<T, kOrder> load_right(const T* at, int stride) {
  if constexpr (std::is_same_v<T, Bf16>) {
    Right<T, kOrder> right;
    load_fragment(right, at, stride);
    return right;
  } else {
    return {at, stride};
  }
}

// A tile of sums as the left factor of the next product, rounded to T: no element changes its lane.
template <class T>
__device__ __forceinline__ Left<T> as_left(const Sum<T>& sum) {
  Left<T> left;
  if constexpr (std::is_same_v<T, Bf16>) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {  // one instruction rounds two
      *reinterpret_cast<__nv_bfloat162*>(&left.x[i]) =
          __floats2bfloat162_rn(sum.x[i], sum.x[i + 1]);
    }
  } else {
    left = sum;
  }
  return left;
}

// sum += left right
template <class T, Order kOrder, Order kOrderOfLeft = Order::kRows>
__device__ __forceinline__ void multiply_add(Sum<T>& sum, const Left<T, kOrderOfLeft>& left,
                                             const Right<T, kOrder>& right) {
  if constexpr (std::is_same_v<T, Bf16>) {
    nvcuda::wmma::mma_sync(sum, left, right, sum);
  } else {
    const int lane = threadIdx.x % kWarp, column = lane % 2 * 8;
#pragma unroll
    for (int k = 0; k < kTile; k += kPack<T>) {
      Pack<T, 8> rows[kPack<T>];
#pragma unroll
      for (int i = 0; i < kPack<T> && kOrder == Order::kRows; ++i) {
        rows[i] = load<8>(right.at + (k + i) * right.stride + column);
      }
#pragma unroll
      for (int n = 0; n < 8 && kOrder == Order::kColumns; ++n) {
        const auto part = load<kPack<T>>(right.at + (column + n) * right.stride + k);
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) rows[i].v[n] = part.v[i];
      }
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        const int holder = lane / 2 * 2 + (k + i) / 8;
        const T a = __shfl_sync(kAllLanes, left.x[(k + i) % 8], holder);
#pragma unroll
        for (int n = 0; n < 8; ++n) sum.x[n] += a * rows[i].v[n];
      }
    }
  }
}

// Which elements of a Sum or a Left a lane holds. CUDA leaves that open, and tensor cores, FMAs and
// the simulator differ; so it is looked up, and what kernels count on is checked: pairs of
// neighbours, two rows at most, shared with lanes l ^ 1 and l ^ 2 at most.
struct Places {
  int rows[2];     // of x[0], x[1], x[4], x[5], and of x[2], x[3], x[6], x[7]
  int columns[4];  // of x[0], x[2], x[4], x[6]: even, with the next element beside it
  bool one_row;    // both rows are one
  bool shared[2];  // whether lanes l ^ 1 and l ^ 2 have the same rows

  __device__ static constexpr int row_slot(int i) { return i / 2 % 2; }

  __device__ int column(int i) const { return columns[i / 2] + i % 2; }

  // v[s] = f over the values that all lanes have for row rows[s].
  template <class A, class F>
  __device__ __forceinline__ void across(A (&v)[2], F f) const {
    if (one_row) v[0] = v[1] = f(v[0], v[1]);
#pragma unroll
    for (int d = 0; d < 2; ++d) {
#pragma unroll
      for (A& value : v) {
        const A other = __shfl_xor_sync(kAllLanes, value, d + 1);
        if (shared[d]) value = f(value, other);
      }
    }
  }
};

// For blocks that begin: all threads call. `scratch` is 256 sums, then 256 elements of T, of shared
// memory; it is free again behind the block's next barrier.
template <class T>
__device__ __forceinline__ Places find_places(Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  constexpr int kAll = kTile * kTile;
  T* const elements = reinterpret_cast<T*>(scratch + kAll);
  for (int i = static_cast<int>(threadIdx.x); i < kAll; i += static_cast<int>(blockDim.x)) {
    scratch[i] = static_cast<A>(i);
    elements[i] = narrow<T>(static_cast<A>(i));
  }
  __syncthreads();
  const Left<T> left = load_left<T>(elements, kTile);
  int at[8];
  bool fits = true;
  if constexpr (std::is_same_v<T, Bf16>) {
    Sum<T> sum;
    nvcuda::wmma::load_matrix_sync(sum, scratch, kTile, nvcuda::wmma::mem_row_major);
#pragma unroll
    for (int i = 0; i < 8; ++i) at[i] = static_cast<int>(sum.x[i]);
#pragma unroll
    for (int i = 0; i < 8; ++i) fits = fits && __bfloat162float(left.x[i]) == sum.x[i];
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) at[i] = static_cast<int>(left.x[i]);
  }
  Places places{.rows = {at[0] / kTile, at[2] / kTile}, .columns = {}, .one_row = {}, .shared = {}};
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    places.columns[i / 2] = at[i] % kTile;
    fits = fits && at[i] % 2 == 0 && at[i + 1] == at[i] + 1;
    fits = fits && at[i] / kTile == places.rows[Places::row_slot(i)];
  }
  places.one_row = places.rows[0] == places.rows[1];
#pragma unroll
  for (int d = 0; d < 2; ++d) {
    const int row = __shfl_xor_sync(kAllLanes, places.rows[0], d + 1);
    const int other = __shfl_xor_sync(kAllLanes, places.rows[1], d + 1);
    places.shared[d] = row == places.rows[0] && other == places.rows[1];
  }
  int elements_of_row[2] = {4, 4};
  places.across(elements_of_row, [](int a, int b) { return a + b; });
  if (!fits || elements_of_row[0] != kTile || elements_of_row[1] != kTile) __trap();
  return places;
}

}  // namespace anabranch::cuda
