#include <algorithm>
#include <limits>

#include "core/ops/embedding.h"
#include "core/ops/row_order.cuh"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

template <class T>
struct Gather {
  T* y;
  const T *table, *second;  // second: null without positions
  const int32_t *ids, *positions;
  int64_t rows, second_rows, width;

  template <int kN>
  __device__ void at(int64_t n, int64_t c) const {
    const int32_t id = ids[n], position = second != nullptr ? positions[n] : 0;
    Pack<T, kN> y_pack;
    if (id < 0 || id >= rows || position < 0 || (second != nullptr && position >= second_rows)) {
      const T nan = narrow<T>(std::numeric_limits<Accumulator<T>>::quiet_NaN());
      for (int i = 0; i < kN; ++i) y_pack.v[i] = nan;
    } else {
      y_pack = load<kN>(table + id * width + c);
      if (second != nullptr) {
        const Pack<T, kN> add = load<kN>(second + position * width + c);
        for (int i = 0; i < kN; ++i) y_pack.v[i] = narrow<T>(wide(y_pack.v[i]) + wide(add.v[i]));
      }
    }
    store(y + n * width + c, y_pack);
  }
};

constexpr int64_t kChunk = 32;    // rows, in the order of their ids, that a block adds up
constexpr int kRunThreads = 256;  // at most, of a block: over the columns
constexpr int kAhead = 4;         // rows read at once

// A run is the rows of one id. One that lies in one chunk is written by its block; of the others
// each chunk has a partial sum, and the run's first chunk adds these in order.
template <class T>
struct RunSums {
  Accumulator<T>* to;
  bool accumulate;
  const T* dy;
  const int32_t *keys, *rows;  // in order
  Accumulator<T>* partials;    // [chunks, kOpen or kBegun, width]
  int64_t count, width;

  static constexpr int64_t kOpen = 0;   // of the run that began in a chunk before
  static constexpr int64_t kBegun = 1;  // of the run that goes on in the next

  __device__ int64_t end(int64_t chunk) const {
    return (chunk + 1) * kChunk < count ? (chunk + 1) * kChunk : count;
  }

  // Whether rows i - 1 and i are of one run.
  __device__ bool together(int64_t i) const { return i > 0 && i < count && keys[i - 1] == keys[i]; }

  __device__ Accumulator<T>* partial(int64_t chunk, int64_t which) const {
    return partials + (2 * chunk + which) * width;
  }
};

template <class T, int kN>
__device__ __forceinline__ void write_run(const RunSums<T>& k, int32_t key, int64_t c,
                                          Pack<Accumulator<T>, kN> sum) {
  Accumulator<T>* to = k.to + key * k.width + c;
  if (k.accumulate) {
    const Pack<Accumulator<T>, kN> there = load<kN>(to);
    for (int j = 0; j < kN; ++j) sum.v[j] += there.v[j];
  }
  store(to, sum);
}

template <class T, int kN>
__global__ void __launch_bounds__(kRunThreads) sum_chunks_kernel(RunSums<T> k) {
  const int64_t c = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kN;
  if (c >= k.width) return;
  const int64_t chunk = blockIdx.x, begin = chunk * kChunk, end = k.end(chunk);
  bool open = k.together(begin);
  Pack<Accumulator<T>, kN> sum{};
  for (int64_t first = begin; first < end; first += kAhead) {
    Pack<T, kN> dys[kAhead];
    for (int j = 0; j < kAhead; ++j) {
      const int64_t i = first + j < end ? first + j : end - 1;
      dys[j] = load<kN>(k.dy + k.rows[i] * k.width + c);
    }
    for (int j = 0; j < kAhead; ++j) {
      const int64_t i = first + j;
      if (i >= end) break;
      for (int l = 0; l < kN; ++l) sum.v[l] += wide(dys[j].v[l]);
      const bool goes_on = k.together(i + 1);
      if (goes_on && i + 1 < end) continue;
      if (open || goes_on) {
        store(k.partial(chunk, open ? k.kOpen : k.kBegun) + c, sum);
      } else {
        write_run<T, kN>(k, k.keys[i], c, sum);
      }
      sum = {};
      open = false;
    }
  }
}

template <class T, int kN>
__global__ void __launch_bounds__(kRunThreads) join_chunks_kernel(RunSums<T> k) {
  const int64_t c = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kN;
  if (c >= k.width) return;
  const int64_t chunk = blockIdx.x, last = k.end(chunk) - 1;
  if (!k.together(last + 1)) return;  // no run goes on
  const int32_t key = k.keys[last];
  if (k.together(chunk * kChunk) && k.keys[chunk * kChunk] == key) return;  // it began before
  // The first chunk after it that does not begin in this run.
  int64_t in = chunk + 1, after = (k.count + kChunk - 1) / kChunk;
  while (in + 1 < after) {
    const int64_t middle = (in + after) / 2;
    (k.keys[middle * kChunk] == key ? in : after) = middle;
  }
  Pack<Accumulator<T>, kN> sum = load<kN>(k.partial(chunk, k.kBegun) + c);
  for (int64_t i = chunk + 1; i < after; ++i) {
    const Pack<Accumulator<T>, kN> part = load<kN>(k.partial(i, k.kOpen) + c);
    for (int j = 0; j < kN; ++j) sum.v[j] += part.v[j];
  }
  write_run<T, kN>(k, key, c, sum);
}

template <class T, int kN>
void sum_runs(const RunSums<T>& k, CUstream_st* stream) {
  const int64_t pieces = (k.width + kN - 1) / kN;
  const int64_t threads = std::min<int64_t>(kRunThreads, (pieces + 31) / 32 * 32);
  const Grid grid{.blocks = dim3(static_cast<unsigned>((k.count + kChunk - 1) / kChunk),
                                 static_cast<unsigned>((pieces + threads - 1) / threads)),
                  .threads = dim3(static_cast<unsigned>(threads))};
  launch<sum_chunks_kernel<T, kN>>(grid, stream, k);
  launch<join_chunks_kernel<T, kN>>(grid, stream, k);
}

}  // namespace

void embedding_forward(Tensor& y, const Tensor& ids, const Tensor& table, const Tensor& positions,
                       const Tensor* position_table) {
  const bool placed = position_table != nullptr;
  dispatch(y.dtype(), [&]<class T>() {
    const Gather<T> k{y.device_data<T>(),
                      table.device_data<T>(),
                      placed ? position_table->device_data<T>() : nullptr,
                      ids.device_data<int32_t>(),
                      placed ? positions.device_data<int32_t>() : nullptr,
                      table.dim(0),
                      placed ? position_table->dim(0) : 0,
                      table.dim(1)};
    const bool packs = k.width % kPack<T> == 0 && aligned_for_packs(k.y, k.table, k.second);
    each_row<kPack<T>>(k, ids.count(), k.width, packs, y.stream());
  });
}

// Reads dy once; writes a sum for each run and chunk, at most count / 16 rows of them.
void embedding_backward(GradSink& dtable, const Tensor& ids, const Tensor& dy) {
  if (!dtable.accumulate) dtable.out.fill_zero();
  if (dy.count() == 0) return;
  const RowOrder order = row_order(ids, dtable.out.dim(0));
  dispatch(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t N = ids.count(), C = dtable.out.dim(1);
    Tensor partials = dy.like({(N + kChunk - 1) / kChunk, 2, C}, kDTypeOf<A>, "partial sums");
    const RunSums<T> k{dtable.out.device_data<A>(),
                       dtable.accumulate,
                       dy.device_data<T>(),
                       order.keys.device_data<int32_t>(),
                       order.rows.device_data<int32_t>(),
                       partials.device_data<A>(),
                       N,
                       C};
    const bool packs = C % kPack<T> == 0 && aligned_for_packs(k.to, k.dy);
    if (packs) return sum_runs<T, kPack<T>>(k, dy.stream());
    sum_runs<T, 1>(k, dy.stream());
  });
}

}  // namespace anabranch::cuda
