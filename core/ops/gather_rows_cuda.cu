#include "core/ops/gather_rows.h"
#include "core/ops/partition.cuh"
#include "core/ops/row_packs.cuh"
#include "core/ops/row_pieces.cuh"

namespace anabranch::cuda {
namespace {

// Rows of a matrix by the run of consecutive ones that they are in: a bucket.
struct RowRuns {
  int64_t rows, of_each, count;

  explicit RowRuns(int64_t n)
      : rows(n),
        of_each(std::max<int64_t>(1, (n + kMostRuns - 1) / kMostRuns)),
        count((n + of_each - 1) / of_each) {}

 private:
  static constexpr int64_t kMostRuns = 256;
};

struct RunOfSlot {
  const int32_t* source;
  int rows, of_each;

  __device__ int operator()(int64_t slot) const {
    const int row = source[slot];
    return 0 <= row && row < rows ? row / of_each : -1;
  }
};

// A slot and its row, by the run of the row.
struct PlaceSlot {
  const int32_t* source;
  int32_t *row, *slot;

  __device__ void operator()(int64_t item, int /*bucket*/, int32_t at) const {
    row[at] = source[item];
    slot[at] = static_cast<int32_t>(item);
  }
};

inline constexpr int kRunWarps = 4;

// A run for each warp, whose slots are `row` and `slot` of the items table[run * tiles] and on:
// sorts them by row.
__global__ void __launch_bounds__(kRunWarps* kWarp)
    sort_runs_kernel(int32_t* offsets, int32_t* slots, const int32_t* table, int64_t tiles,
                     const int32_t* row, const int32_t* slot, RowRuns runs) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = blockDim.x / kWarp;
  const int64_t run = int64_t{blockIdx.x} * warps + warp;
  if (run >= runs.count) return;  // a whole warp, and no barrier of the block follows
  int32_t* next = dynamic_shared<int32_t>() + warp * runs.of_each;
  const int64_t first = run * runs.of_each;
  const int64_t count = first + runs.of_each < runs.rows ? runs.of_each : runs.rows - first;
  const int32_t begin = table[run * tiles], end = table[(run + 1) * tiles];
  for (int64_t r = lane_of_warp(); r < count; r += kWarp) next[r] = 0;
  __syncwarp();
  const auto row_of = [=](int64_t i) { return static_cast<int>(row[i] - first); };
  for_items(begin, end, row_of, [&](int64_t, int r) { count_lanes(next, r); });
  int32_t carry = begin;
  for (int64_t r0 = 0; r0 < count; r0 += kWarp) {
    const int64_t r = r0 + lane_of_warp();
    const int32_t mine = r < count ? next[r] : 0;
    const int32_t up_to = warp_scan(mine);
    if (r < count) next[r] = offsets[first + r] = carry + up_to - mine;
    carry += __shfl_sync(kAllLanes, up_to, kWarp - 1);
  }
  if (run == runs.count - 1 && lane_of_warp() == 0) offsets[runs.rows] = end;
  __syncwarp();
  for_items(begin, end, row_of, [&](int64_t i, int r) {
    const int32_t at = count_lanes(next, r);
    if (r >= 0) slots[at] = slot[i];
  });
}

template <class T, int kN>
__global__ void __launch_bounds__(kRowThreads)
    gather_rows_kernel(T* y, const T* x, const int32_t* source, int64_t slots, int64_t rows,
                       int64_t width) {
  const int64_t s = row_of_thread();
  if (s >= slots) return;
  const int64_t row = source[s];
  const bool used = 0 <= row && row < rows;
  for (int64_t c = threadIdx.x * kN; c < width; c += blockDim.x * kN) {
    Pack<T, kN> pack{};
    if (used) pack = load<kN>(x + row * width + c);
    store(y + s * width + c, pack);
  }
}

template <class T, class A = Accumulator<T>>
struct SumSlots {
  T* y;
  const A* weight;  // null: ones
  const int32_t *offsets, *slots;
  int64_t rows, width;
  bool accumulate;
};

// A pack of columns of a row for each thread.
template <class T, int kN>
__global__ void __launch_bounds__(kRowThreads)
    sum_slots_kernel(SumSlots<T> k, RowPieces<const T> z) {
  using A = Accumulator<T>;
  constexpr int kAhead = 4;  // rows that are loaded at once
  const int64_t row = row_of_thread();
  if (row >= k.rows) return;
  const int32_t begin = k.offsets[row], end = k.offsets[row + 1];
  if (k.accumulate && begin == end) return;
  for (int64_t c = threadIdx.x * kN; c < k.width; c += blockDim.x * kN) {
    T* y = k.y + row * k.width + c;
    A sums[kN] = {};
    if (k.accumulate) {
      const Pack<T, kN> there = load<kN>(y);
      for (int i = 0; i < kN; ++i) sums[i] = wide(there.v[i]);
    }
    for (int32_t first = begin; first < end; first += kAhead) {
      Pack<T, kN> rows[kAhead];
      A weights[kAhead];
      for (int j = 0; j < kAhead; ++j) {
        if (first + j >= end) continue;
        const int32_t slot = k.slots[first + j];
        weights[j] = k.weight != nullptr ? k.weight[slot] : A(1);
        rows[j] = load<kN>(z.row(slot, k.width) + c);
      }
      for (int j = 0; j < kAhead; ++j) {
        if (first + j >= end) continue;
        for (int i = 0; i < kN; ++i) sums[i] += weights[j] * wide(rows[j].v[i]);
      }
    }
    Pack<T, kN> pack;
    for (int i = 0; i < kN; ++i) pack.v[i] = narrow<T>(sums[i]);
    store(y, pack);
  }
}

}  // namespace

// Moves 28 bytes for each slot and 4 for each row.
SlotsOfRows slots_of_rows(const Tensor& source, int64_t rows) {
  AB_CHECK(rows <= INT32_MAX && source.count() <= INT32_MAX, "[slots_of_rows] ", rows, " rows and ",
           source.count(), " slots");
  const int64_t S = source.count();
  SlotsOfRows of{source.like({rows + 1}, DType::kI32, "slots_of_rows.offsets"),
                 source.like({S}, DType::kI32, "slots_of_rows.slots")};
  if (rows == 0) {
    of.offsets.fill_zero();
    return of;
  }
  const RowRuns runs(rows);
  const Tiles tiles(1, S);
  const auto* from = source.device_data<int32_t>();
  const RunOfSlot run_of{from, static_cast<int>(rows), static_cast<int>(runs.of_each)};
  const Tensor table = partition_table(source, tiles, runs.count, run_of);
  Tensor by_run = source.like({2, S}, DType::kI32, "slots_of_rows.by_run");
  auto* row = by_run.device_data<int32_t>();
  partition_place(table, tiles, runs.count, run_of, PlaceSlot{from, row, row + S});
  Grid grid = warp_grid(runs.count, runs.of_each * int64_t{sizeof(int32_t)}, kRunWarps);
  launch<sort_runs_kernel>(grid, source.stream(), of.offsets.device_data<int32_t>(),
                           of.slots.device_data<int32_t>(), table.device_data<int32_t>(),
                           tiles.count(), row, row + S, runs);
  return of;
}

void gather_rows_forward(Tensor& y, const Tensor& x, const Tensor& source) {
  dispatch(x.dtype(), [&]<class T>() {
    T* to = y.device_data<T>();
    const T* from = x.device_data<T>();
    with_packs<T>(y.dim(1), aligned_for_packs(to, from), [&]<int kN>() {
      launch<gather_rows_kernel<T, kN>>(row_grid<kN>(y.dim(0), y.dim(1)), y.stream(), to, from,
                                        source.device_data<int32_t>(), y.dim(0), x.dim(0),
                                        y.dim(1));
    });
  });
}

void sum_slots(GradSink& y, std::span<const Tensor> z, const Tensor* weight,
               const SlotsOfRows& of) {
  dispatch(y.out.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const RowPieces<const T> pieces = row_pieces<const T>("sum_slots", z);
    T* to = y.out.device_data<T>();
    const int64_t rows = y.out.dim(0), width = y.out.dim(1);
    const SumSlots<T> k{to,
                        weight != nullptr ? weight->device_data<A>() : nullptr,
                        of.offsets.device_data<int32_t>(),
                        of.slots.device_data<int32_t>(),
                        rows,
                        width,
                        y.accumulate};
    with_packs<T>(width, pieces.aligned() && aligned_for_packs(to), [&]<int kN>() {
      launch<sum_slots_kernel<T, kN>>(row_grid<kN>(rows, width), y.out.stream(), k, pieces);
    });
  });
}

}  // namespace anabranch::cuda
