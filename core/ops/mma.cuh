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

// Which elements of a Sum or a Left a lane holds: pairs of neighbours, in two rows or in one. CUDA
// leaves that open for tensor cores; on sm_80 and sm_90 it is that of PTX's mma.m16n8k16, as
// check_places() makes sure. It is known to the compiler and so costs two registers.
template <class T>
class Places {
  static constexpr bool kTwoRows = std::is_same_v<T, Bf16>;  // 8 apart, as the halves of a row are
  static constexpr int kAcross = kTwoRows ? 4 : 2;           // lanes that share a row

 public:
  __device__ __forceinline__ Places()
      : row_(lane_of_warp() / kAcross), column_(lane_of_warp() % kAcross * (kTwoRows ? 2 : 8)) {}

  // Which of the rows x[i] is in.
  __device__ static constexpr int row_slot(int i) { return i / 2 % 2; }

  __device__ __forceinline__ int row(int slot) const { return kTwoRows ? row_ + 8 * slot : row_; }

  __device__ __forceinline__ int column(int i) const {
    return column_ + (kTwoRows ? i / 4 * 8 + i % 2 : i);
  }

  // v[s] = f over the values that all lanes have for row(s).
  template <class A, class F>
  __device__ __forceinline__ void across(A (&v)[2], F f) const {
    if constexpr (!kTwoRows) v[0] = v[1] = f(v[0], v[1]);
#pragma unroll
    for (int d = 1; d < kAcross; d *= 2) {
#pragma unroll
      for (A& value : v) value = f(value, __shfl_xor_sync(kAllLanes, value, d));
    }
  }

 private:
  int row_, column_;
};

// Stops the kernel where tensor cores hold elements in other places. All threads of a block call.
// `scratch` is shared memory for 256 sums, then 256 Bf16; it is free again behind the block's next
// barrier. Not inline, or attention's forward spills.
inline __device__ __noinline__ void check_places(float* scratch) {
  constexpr int kAll = kTile * kTile;
  Bf16* const elements = reinterpret_cast<Bf16*>(scratch + kAll);
  for (int i = static_cast<int>(threadIdx.x); i < kAll; i += static_cast<int>(blockDim.x)) {
    scratch[i] = static_cast<float>(i);
    elements[i] = narrow<Bf16>(static_cast<float>(i));
  }
  __syncthreads();
  const Left<Bf16> left = load_left<Bf16>(elements, kTile);
  Sum<Bf16> sum;
  nvcuda::wmma::load_matrix_sync(sum, scratch, kTile, nvcuda::wmma::mem_row_major);
  const Places<Bf16> places;
  bool fits = true;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = places.row(Places<Bf16>::row_slot(i)) * kTile + places.column(i);
    fits = fits && sum.x[i] == static_cast<float>(at) && __bfloat162float(left.x[i]) == sum.x[i];
  }
  if (!fits) __trap();
}

}  // namespace anabranch::cuda
