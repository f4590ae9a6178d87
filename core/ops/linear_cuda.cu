#include "core/ops/gemm.h"
#include "core/ops/linear.h"
#include "core/ops/row_bias.cuh"
#include "core/ops/row_blocks.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kColumns = 32, kGroups = 8;

// The sums of a block of rows: a thread adds kN columns of each kGroups-th row, and the groups'
// sums are added in their order. Reads dy once.
template <class T, int kN>
__global__ void __launch_bounds__(kColumns* kGroups)
    column_sums_kernel(Accumulator<T>* partials, const T* dy, int64_t rows, int64_t per_block,
                       int64_t width) {
  using A = Accumulator<T>;
  auto& sums = shared<A[kGroups][kColumns * kN]>();
  const int64_t first_column = int64_t{blockIdx.y} * (kColumns * kN);
  const int64_t column = first_column + threadIdx.x * kN;
  const int64_t begin = int64_t{blockIdx.x} * per_block;
  const int64_t end = begin + per_block < rows ? begin + per_block : rows;
  Pack<A, kN> sum{};
  if (column < width) {
    for (int64_t row = begin + threadIdx.y; row < end; row += kGroups) {
      const Pack<T, kN> dys = load<kN>(dy + row * width + column);
      for (int i = 0; i < kN; ++i) sum.v[i] += wide(dys.v[i]);
    }
  }
  for (int i = 0; i < kN; ++i) sums[threadIdx.y][threadIdx.x * kN + i] = sum.v[i];
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y * kColumns + threadIdx.x);
  if (thread >= kColumns * kN || first_column + thread >= width) return;
  A total = sums[0][thread];
  for (int g = 1; g < kGroups; ++g) total += sums[g][thread];
  partials[int64_t{blockIdx.x} * width + first_column + thread] = total;
}

}  // namespace

void linear_gelu_forward(Tensor& y, Tensor& h, const Tensor& x, const Tensor& w,
                         const Tensor& bias) {
  anabranch::gemm(h, x, w, {.transpose_b = true});
  row_bias<true>(h, bias, &y);
}

void column_sums(GradSink& db, const Tensor& dy) {
  const int64_t width = db.out.count();
  if (width == 0) return;
  const GridRows blocks(dy.count() / width);
  dispatch(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Tensor partials = dy.like({blocks.count, width}, kDTypeOf<A>, "partial sums");
    A* sums = partials.device_data<A>();
    const T* from = dy.device_data<T>();
    const bool packs = width % kPack<T> == 0 && aligned_for_packs(from);
    const int64_t columns = kColumns * (packs ? kPack<T> : 1);
    const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks.count),
                                   static_cast<unsigned>((width + columns - 1) / columns)),
                    .threads = dim3(kColumns, kGroups)};
    const auto run = [&]<int kN>() {
      launch<column_sums_kernel<T, kN>>(grid, dy.stream(), sums, from, blocks.rows,
                                        blocks.per_block, width);
    };
    packs ? run.template operator()<kPack<T>>() : run.template operator()<1>();
    add_partials<A>(db, sums, blocks.count, width);
  });
}

}  // namespace anabranch::cuda
