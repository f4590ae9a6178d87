#include "core/ops/group_offsets.cuh"
#include "core/ops/grouped_linear.h"
#include "core/ops/product_tile.cuh"

namespace anabranch::cuda {
namespace {

// c[r] (+)= a[r] op(b_e) for the rows r of each group e: a [S, k], b [E, n, k] if transposed, else
// [E, k, n], c [S, n].
template <class T>
struct RowProduct {
  T* c;
  const T *a, *b;
  const int64_t* offsets;
  int64_t groups, n, k;
  bool accumulate;
};

// c_e (+)= the sum over the rows r of group e of a[r]^T b[r]: a [S, m], b [S, n], c [E, m, n].
template <class T>
struct SumProduct {
  Accumulator<T>* c;
  const T *a, *b;
  const int64_t* offsets;
  int64_t groups, m, n;
  bool accumulate;
};

int64_t parts(int64_t extent, int64_t part) { return (extent + part - 1) / part; }

__device__ __forceinline__ int at_most(int64_t extent, int most) {
  return extent < most ? static_cast<int>(extent) : most;
}

// A block for each tile that there may be: those of some rows lie beside each other, and share
// these rows in the cache.
template <class T, bool kTransposeB, bool kPacks>
__global__ void __launch_bounds__(TileShape<T>::kThreads, 2) row_product_kernel(RowProduct<T> k) {
  constexpr int kM = TileShape<T>::kM, kN = TileShape<T>::kN;
  const int64_t across = (k.n + kN - 1) / kN;
  const GroupTile g = group_tile<kM>(k.offsets, k.groups, int64_t{blockIdx.x} / across);
  if (g.group < 0) return;  // all of the block, before any barrier
  const int64_t column = int64_t{blockIdx.x} % across * kN;
  const T* b = k.b + g.group * k.n * k.k;
  make_tile<false, kTransposeB, kPacks>(ProductTile<T, T>{
      k.c + g.begin * k.n + column, k.a + g.begin * k.k,
      kTransposeB ? b + column * k.k : b + column, k.n, k.k, kTransposeB ? k.k : k.n, k.k,
      static_cast<int>(g.end - g.begin), at_most(k.n - column, kN), k.accumulate});
}

template <class T, bool kPacks>
__global__ void __launch_bounds__(TileShape<T>::kThreads, 2) sum_product_kernel(SumProduct<T> k) {
  constexpr int kM = TileShape<T>::kM, kN = TileShape<T>::kN;
  const int64_t across = (k.n + kN - 1) / kN, down = (k.m + kM - 1) / kM;
  const int64_t e = int64_t{blockIdx.x} / (across * down);
  const int64_t row = int64_t{blockIdx.x} / across % down * kM;
  const int64_t column = int64_t{blockIdx.x} % across * kN;
  const int64_t begin = k.offsets[e], rows = k.offsets[e + 1] - begin;
  make_tile<true, false, kPacks>(ProductTile<T, Accumulator<T>>{
      k.c + (e * k.m + row) * k.n + column, k.a + begin * k.m + row, k.b + begin * k.n + column,
      k.n, k.m, k.n, rows, at_most(k.m - row, kM), at_most(k.n - column, kN), k.accumulate});
}

template <class T, bool kTransposeB>
void run(const RowProduct<T>& k, int64_t rows, CUstream_st* stream) {
  const int64_t blocks =
      most_tiles<TileShape<T>::kM>(rows, k.groups) * parts(k.n, TileShape<T>::kN);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)),
                  .threads = dim3(TileShape<T>::kThreads),
                  .shared_bytes = tile_bytes<T, false, kTransposeB>()};
  const bool packs = k.n % kPack<T> == 0 && k.k % kPack<T> == 0 && aligned_for_packs(k.a, k.b, k.c);
  if (packs) return launch<row_product_kernel<T, kTransposeB, true>>(grid, stream, k);
  launch<row_product_kernel<T, kTransposeB, false>>(grid, stream, k);
}

// Groups of all of c's rows, w_e transposed or not.
void map_rows(Tensor& c, const Tensor& a, const Tensor& w, const Groups& groups, bool transpose,
              bool accumulate) {
  const Tensor offsets = offsets_on_device(groups, a);
  dispatch(a.dtype(), [&]<class T>() {
    const RowProduct<T> k{
        c.device_data<T>(), a.device_data<T>(), w.device_data<T>(), offsets.device_data<int64_t>(),
        groups.count(),     c.dim(1),           a.dim(1),           accumulate};
    transpose ? run<T, true>(k, a.dim(0), a.stream()) : run<T, false>(k, a.dim(0), a.stream());
  });
}

}  // namespace

void grouped_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Groups& groups) {
  map_rows(y, x, w, groups, true, false);
}

void grouped_linear_backward(GradSink& dx, const Tensor& dy, const Tensor& w,
                             const Groups& groups) {
  map_rows(dx.out, dy, w, groups, false, dx.accumulate);
}

void grouped_linear_weight_backward(GradSink& dw, const Tensor& dy, const Tensor& x,
                                    const Groups& groups) {
  const Tensor offsets = offsets_on_device(groups, x);
  dispatch(x.dtype(), [&]<class T>() {
    const SumProduct<T> k{dw.out.device_data<Accumulator<T>>(),
                          dy.device_data<T>(),
                          x.device_data<T>(),
                          offsets.device_data<int64_t>(),
                          groups.count(),
                          dy.dim(1),
                          x.dim(1),
                          dw.accumulate};
    const int64_t blocks = k.groups * parts(k.m, TileShape<T>::kM) * parts(k.n, TileShape<T>::kN);
    const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)),
                    .threads = dim3(TileShape<T>::kThreads),
                    .shared_bytes = tile_bytes<T, true, false>()};
    const bool packs =
        k.m % kPack<T> == 0 && k.n % kPack<T> == 0 && aligned_for_packs(k.a, k.b, k.c);
    if (packs) return launch<sum_product_kernel<T, true>>(grid, x.stream(), k);
    launch<sum_product_kernel<T, false>>(grid, x.stream(), k);
  });
}

}  // namespace anabranch::cuda
