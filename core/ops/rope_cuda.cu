#include <algorithm>
#include <cmath>

#include "core/ops/rope.h"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kThreads = 256, kRows = 8;

template <class T>
struct Turn {
  T* y;
  const T* x;
  const int32_t* positions;
  int64_t rows, width;
  int half, heads;  // heads that turn; the rest of a row is copied
  double base, sign;
};

// cos and sin of a row's angles, [D/2] each, in the type of the sums.
template <class T>
__device__ __forceinline__ void find_angles(const Turn<T>& k, int64_t first, int rows,
                                            Accumulator<T>* turns) {
  using A = Accumulator<T>;
  for (int i = static_cast<int>(threadIdx.x); i < rows * k.half; i += kThreads) {
    const int row = i / k.half, pair = i % k.half;
    const double exponent = -static_cast<double>(pair) / static_cast<double>(k.half);
    const double angle = k.positions[first + row] * std::pow(k.base, exponent);
    A* const to = turns + row * 2 * k.half + pair;
    to[0] = static_cast<A>(std::cos(angle));
    to[k.half] = static_cast<A>(k.sign * std::sin(angle));
  }
}

// A block has 8 rows, whose angles it finds once for all heads. Moves 2 x rows x width elements.
template <class T, int kN>
__global__ void __launch_bounds__(kThreads) rope_kernel(Turn<T> k) {
  using A = Accumulator<T>;
  A* const turns = dynamic_shared<A>();
  const int64_t first = int64_t{blockIdx.x} * kRows;
  const int rows = static_cast<int>(k.rows - first < kRows ? k.rows - first : kRows);
  find_angles(k, first, rows, turns);
  __syncthreads();
  const int steps = k.half / kN, turned = k.heads * steps;  // a step is kN pairs
  for (int i = static_cast<int>(threadIdx.x); i < rows * turned; i += kThreads) {
    const int row = i / turned, pair = i % steps * kN;
    const int64_t at = (first + row) * k.width + i % turned / steps * 2 * k.half + pair;
    const A* const turn = turns + row * 2 * k.half + pair;
    Pack<T, kN> a = load<kN>(k.x + at), b = load<kN>(k.x + at + k.half);
    for (int e = 0; e < kN; ++e) {
      const A p = wide(a.v[e]), q = wide(b.v[e]), c = turn[e], s = turn[k.half + e];
      a.v[e] = narrow<T>(p * c - q * s);
      b.v[e] = narrow<T>(p * s + q * c);
    }
    store(k.y + at, a);
    store(k.y + at + k.half, b);
  }
  if (k.y == k.x) return;  // all threads of all blocks
  const int skipped = k.heads * 2 * k.half, rest = static_cast<int>(k.width - skipped) / kN;
  for (int i = static_cast<int>(threadIdx.x); i < rows * rest; i += kThreads) {
    const int64_t at = (first + i / rest) * k.width + skipped + i % rest * kN;
    store(k.y + at, load<kN>(k.x + at));
  }
}

}  // namespace

void rope(Tensor& y, const Tensor& x, const Tensor& positions, const RopeForm& form, bool back) {
  dispatch(x.dtype(), [&]<class T>() {
    const int64_t rows = x.dim(0), half = form.head_dim / 2;
    const Turn<T> k{y.device_data<T>(),
                    x.device_data<T>(),
                    positions.device_data<int32_t>(),
                    rows,
                    x.dim(1),
                    static_cast<int>(half),
                    static_cast<int>(form.heads_q + form.heads_kv),
                    form.base,
                    back != form.reversed ? -1.0 : 1.0};
    const Grid grid{
        .blocks = dim3(static_cast<unsigned>((rows + kRows - 1) / kRows)),
        .threads = dim3(kThreads),
        .shared_bytes = static_cast<size_t>(kRows * form.head_dim) * sizeof(Accumulator<T>)};
    if (half % kPack<T> == 0 && aligned_for_packs(k.y, k.x)) {
      return launch<rope_kernel<T, kPack<T>>>(grid, y.stream(), k);
    }
    launch<rope_kernel<T, 1>>(grid, y.stream(), k);
  });
}

}  // namespace anabranch::cuda
