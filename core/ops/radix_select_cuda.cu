#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/ops/radix_select.h"
#include "core/ops/score_keys.cuh"
#include "core/ops/slot_plan.cuh"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// Calls f.template operator()<A, Key>(): the scores' type, and that of their keys.
template <class F>
void with_keys(DType scores, const F& f) {
  dispatch(scores, [&]<class T>() {
    using A = Accumulator<T>;
    f.template operator()<A, decltype(sort_key(A()))>();
  });
}

template <class Key>
const Key* keys_of(const Tensor& t) {
  return reinterpret_cast<const Key*>(t.device_data<std::make_signed_t<Key>>());
}

template <class Key>
Key* keys_of(Tensor& t) {
  return reinterpret_cast<Key*>(t.device_data<std::make_signed_t<Key>>());
}

// What a part knows. Its items are its keys, expert after expert.
template <class Key>
struct Part {
  const Key *keys, *kth;
  int rows, experts;

  explicit Part(const RadixSelect& of)
      : keys(keys_of<Key>(of.keys)),
        kth(keys_of<Key>(of.kth)),
        rows(static_cast<int>(of.keys.dim(1))),
        experts(static_cast<int>(of.keys.dim(0))) {}

  [[nodiscard]] __device__ int expert(int64_t item) const { return static_cast<int>(item) / rows; }

  [[nodiscard]] __device__ int32_t row(int64_t item) const { return static_cast<int>(item) % rows; }

  [[nodiscard]] __device__ int32_t gate(int64_t item) const {
    return row(item) * experts + expert(item);
  }
};

struct Begin {
  int64_t *place, k;

  template <int kN>
  __device__ void at(int64_t e) const {
    place[e] = k;
  }
};

template <class Key>
struct DigitOf {
  Part<Key> part;
  KeyDigit digit;

  __device__ int operator()(int64_t item) const {
    return digit.of(part.keys[item], part.kth[part.expert(item)]);
  }
};

// counts[e, d] = the items of bucket d among those of e's tiles. Some lanes for each.
__global__ void __launch_bounds__(kPlanThreads)
    digit_sums_kernel(int64_t* counts, const int32_t* table, int64_t experts, int64_t width,
                      int64_t tiles_of_expert, int lanes) {
  const int64_t i = (int64_t{blockIdx.x} * kPlanThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool here = i < experts * width;
  int64_t sum = 0;
  if (here) {
    const int32_t* from = table + (i % width * experts + i / width) * tiles_of_expert;
    for (int64_t t = lane; t < tiles_of_expert; t += lanes) sum += from[t];
  }
  sum = group_sum(sum, lanes);
  if (here && lane == 0) counts[i] = sum;
}

// A warp for each expert, whose lanes have some values each, the largest first.
template <class Key>
__global__ void __launch_bounds__(kPlanThreads)
    take_digit_kernel(Key* kth, int64_t* place, const int64_t* counts, int64_t experts,
                      KeyDigit digit) {
  const int64_t e = (int64_t{blockIdx.x} * kPlanThreads + threadIdx.x) / kWarp;
  if (e >= experts) return;  // a whole warp
  const int width = 1 << digit.bits, each = (width + kWarp - 1) / kWarp;
  const int64_t* with = counts + e * width;
  const int largest = width - 1 - lane_of_warp() * each;
  const int least = largest - each + 1 > 0 ? largest - each + 1 : 0;
  int64_t mine = 0;
  for (int value = largest; value >= least; --value) mine += with[value];
  const int64_t wanted = place[e];
  int64_t above = warp_scan(mine) - mine;  // all lanes have read the place
  if (above >= wanted || above + mine < wanted) return;
  int value = largest;
  for (; above + with[value] < wanted; --value) above += with[value];
  kth[e] |= static_cast<Key>(value) << digit.low;
  place[e] = wanted - above;
}

template <class A, class Key>
struct ScoreOf {
  A* scores;
  const Key* kth;

  template <int kN>
  __device__ void at(int64_t e) const {
    scores[e] = of_sort_key(kth[e]);
  }
};

// The last row of those equal to the k-th that an expert takes: -1 if none, and `rows` unless the
// places end here.
struct LastTie {
  int32_t* last;
  const int64_t *place, *before;
  int32_t rows;

  template <int kN>
  __device__ void at(int64_t e) const {
    last[e] = before[e] < place[e] ? rows : -1;
  }
};

// Finds it among those equal to the k-th, which are partitioned as one bucket.
template <class Key>
struct FindLast {
  Part<Key> part;
  LastTie to;
  const int32_t* table;
  int64_t tiles_of_expert;

  __device__ void operator()(int64_t item, int /*bucket*/, int32_t at) const {
    const int e = part.expert(item);
    const int64_t nth = to.before[e] + at - table[e * tiles_of_expert] + 1;
    if (nth == to.place[e]) to.last[e] = part.row(item);
  }
};

template <class Key>
struct Taken : Part<Key> {
  const int32_t* last;

  __device__ int operator()(int64_t item) const {
    const int e = this->expert(item);
    const Key key = this->keys[item], least = this->kth[e];
    return key > least || (key == least && this->row(item) <= last[e]) ? e : -1;
  }
};

// An expert's slots by falling key: each goes where the number of larger ones says. A block's
// expert is blockIdx.y. Its time grows with the square of the slots, which no model's run asks for.
template <class Key>
__global__ void __launch_bounds__(kPlanThreads)
    by_affinity_kernel(int32_t* source, int32_t* gate, const int32_t* by_time,
                       const int64_t* offsets, Part<Key> part) {
  const int64_t e = blockIdx.y, begin = offsets[e], end = offsets[e + 1];
  const int64_t slot = begin + int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (slot >= end) return;
  const Key* keys = part.keys + e * part.rows;
  const int32_t row = by_time[slot];
  int64_t to = begin;
  for (int64_t s = begin; s < end; ++s) {
    const Key other = keys[by_time[s]];
    if (other > keys[row] || (other == keys[row] && s < slot)) ++to;
  }
  source[to] = row;
  gate[to] = static_cast<int32_t>(row * part.experts + e);
}

template <class Key>
void sort_by_affinity(SlotPlan& plan, const Part<Key>& part) {
  const Tensor by_time = plan.source.clone("radix_select.by_time");
  Grid grid = plan_grid(std::min<int64_t>(part.rows, plan.groups.row_bound));
  grid.blocks.y = static_cast<unsigned>(part.experts);
  launch<by_affinity_kernel<Key>>(grid, by_time.stream(), plan.source.device_data<int32_t>(),
                                  plan.gate.device_data<int32_t>(), by_time.device_data<int32_t>(),
                                  std::as_const(plan.groups.on_device).device_data<int64_t>(),
                                  part);
}

}  // namespace

void begin_select(RadixSelect& select, const Tensor& scores) {
  select.kth.fill_zero();
  each_pack<1>(Begin{select.place.device_data<int64_t>(), select.k}, select.place.count(), false,
               scores.stream());
  with_keys(select.scores,
            [&]<class A, class Key>() { score_keys<A>(keys_of<Key>(select.keys), scores); });
}

void digit_counts(Tensor& counts, const RadixSelect& of, const KeyDigit& digit) {
  const int64_t E = of.keys.dim(0), width = counts.dim(1);
  const Tiles tiles(E, of.keys.dim(1));
  Tensor table = of.keys.like({width, tiles.count()}, DType::kI32, "radix_select.table");
  with_keys(of.scores, [&]<class A, class Key>() {
    launch<count_items_kernel<DigitOf<Key>>>(
        grid_of(tiles, width), table.stream(), table.device_data<int32_t>(), tiles,
        static_cast<int>(width), DigitOf<Key>{Part<Key>(of), digit});
  });
  const int lanes = lanes_for(tiles.of_segment);
  launch<digit_sums_kernel>(plan_grid(counts.count() * lanes), table.stream(),
                            counts.device_data<int64_t>(), table.device_data<int32_t>(), E, width,
                            tiles.of_segment, lanes);
}

void take_digit(RadixSelect& of, const KeyDigit& digit, const Tensor& counts) {
  const int64_t E = of.keys.dim(0);
  with_keys(of.scores, [&]<class A, class Key>() {
    launch<take_digit_kernel<Key>>(plan_grid(E * kWarp), of.keys.stream(), keys_of<Key>(of.kth),
                                   of.place.device_data<int64_t>(), counts.device_data<int64_t>(),
                                   E, digit);
  });
}

void kth_scores(Tensor& scores, const RadixSelect& of) {
  with_keys(of.scores, [&]<class A, class Key>() {
    each_pack<1>(ScoreOf<A, Key>{scores.device_data<A>(), keys_of<Key>(of.kth)}, scores.count(),
                 false, scores.stream());
  });
}

SlotPlan slots_taken(const RadixSelect& of, const Tensor& before, SlotOrder order) {
  const int64_t E = of.keys.dim(0), M = of.keys.dim(1);
  Tensor last = of.keys.like({E}, DType::kI32, "radix_select.last");
  const LastTie tie{last.device_data<int32_t>(), of.place.device_data<int64_t>(),
                    before.device_data<int64_t>(), static_cast<int32_t>(M)};
  each_pack<1>(tie, E, false, last.stream());
  const Tiles tiles(E, M);
  SlotPlan plan;
  with_keys(of.scores, [&]<class A, class Key>() {
    const Part<Key> part(of);
    const DigitOf<Key> equal{part, {0, 0}};
    const Tensor table = partition_table(last, tiles, 1, equal);
    partition_place(table, tiles, 1, equal,
                    FindLast<Key>{part, tie, table.device_data<int32_t>(), tiles.of_segment});
    const int64_t most = E * std::min(of.k, M);
    plan = plan_of(last, E * M, E, M, most,
                   Taken<Key>{part, std::as_const(last).device_data<int32_t>()});
    if (order == SlotOrder::kAffinity) sort_by_affinity(plan, part);
  });
  return plan;
}

}  // namespace anabranch::cuda
