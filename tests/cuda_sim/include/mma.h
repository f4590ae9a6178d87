// Matrix products of a warp (wmma), 16 x 16 x 16 with float sums.
//
// Each lane holds 8 of a tile's 256 elements: those that it has of sums and left factors in PTX's
// mma.m16n8k16, as sm_80 and sm_90 do; here of right factors too. Loads and stores do not make the
// lanes meet, which is stricter than a GPU: what other lanes wrote to shared memory needs a
// __syncwarp first.
#pragma once

#include <cstring>
#include <type_traits>

#include <cuda_bf16.h>

#include "tests/cuda_sim/device.h"

// NOLINTBEGIN: these names are CUDA's.
namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;

enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "the simulator knows 16 x 16 x 16 only");
  using element_type = T;
  static constexpr int num_elements = 8;
  alignas(4) T x[num_elements];
};

template <class Fragment>
void fill_fragment(Fragment& f, std::type_identity_t<typename Fragment::element_type> value) {
  for (auto& element : f.x) element = value;
}

namespace detail {

// The place in memory of element e = row * 16 + column.
inline size_t offset(size_t e, unsigned stride, bool by_columns) {
  const size_t row = e / 16, column = e % 16;
  return by_columns ? column * stride + row : row * stride + column;
}

template <class T>
void check(const T* p, unsigned stride) {
  anabranch::cuda_sim::check_aligned(p, 32);
  if (stride * sizeof(T) % 16 != 0) {
    anabranch::cuda_sim::fault("wmma: the leading dimension is no multiple of 16 bytes");
  }
}

// Element i of a lane, as row * 16 + column.
inline size_t element(size_t lane, size_t i) {
  const size_t row = lane / 4 + i / 2 % 2 * 8, column = lane % 4 * 2 + i / 4 * 8 + i % 2;
  return row * 16 + column;
}

inline size_t own_element(size_t i) {
  return element(static_cast<size_t>(anabranch::cuda_sim::lane_id()), i);
}

template <class Fragment, class T>
void load(Fragment& f, const T* p, unsigned stride, bool by_columns) {
  check(p, stride);
  for (size_t i = 0; i < 8; ++i) f.x[i] = p[offset(own_element(i), stride, by_columns)];
}

template <class T>
struct Slot {
  const T *a, *b;
  const float* c;
  float* d;
};

inline float as_float(__nv_bfloat16 v) { return __bfloat162float(v); }

template <class T>
void multiply(unsigned live, void* const* slots) {
  if (live != ~0U) anabranch::cuda_sim::fault("mma_sync needs all 32 lanes");
  float a[256], b[256], c[256];
  for (size_t k = 0; k < 256; ++k) {
    const auto& slot = *static_cast<Slot<T>*>(slots[k / 8]);
    const size_t e = element(k / 8, k % 8);
    a[e] = as_float(slot.a[k % 8]);
    b[e] = as_float(slot.b[k % 8]);
    c[e] = slot.c[k % 8];
  }
  for (size_t i = 0; i < 16; ++i) {
    for (size_t k = 0; k < 16; ++k) {
      for (size_t j = 0; j < 16; ++j) c[i * 16 + j] += a[i * 16 + k] * b[k * 16 + j];
    }
  }
  for (size_t k = 0; k < 256; ++k) {
    static_cast<Slot<T>*>(slots[k / 8])->d[k % 8] = c[element(k / 8, k % 8)];
  }
}

}  // namespace detail

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& f, const T* p, unsigned stride) {
  detail::load(f, p, stride, std::is_same_v<Layout, col_major>);
}

template <class T>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& f, const T* p, unsigned stride,
                      layout_t layout) {
  detail::load(f, p, stride, layout == mem_col_major);
}

template <class T>
void store_matrix_sync(T* p, const fragment<accumulator, 16, 16, 16, T>& f, unsigned stride,
                       layout_t layout) {
  detail::check(p, stride);
  for (size_t i = 0; i < 8; ++i) {
    p[detail::offset(detail::own_element(i), stride, layout == mem_col_major)] = f.x[i];
  }
}

template <class T, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d,
              const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b,
              const fragment<accumulator, 16, 16, 16, float>& c,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::Slot<T> slot{a.x, b.x, c.x, d.x};
  anabranch::cuda_sim::warp_collective(
      {"mma_sync", ~0U, &slot, &detail::multiply<T>, {file, line}});
}

}  // namespace nvcuda::wmma

// NOLINTEND
