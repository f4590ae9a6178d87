#include <utility>

#include "core/ops/expert_choice.h"
#include "core/ops/score_keys.cuh"
#include "core/ops/slot_plan.cuh"

namespace anabranch::cuda {
namespace {

inline constexpr int kChooseThreads = 1024, kChooseWarps = kChooseThreads / kWarp;
inline constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;

// What experts take of pools of rows.
template <class A, class Key>
struct Turns {
  int32_t *source, *gate;  // [E, pools, k]
  A* kth;                  // [pools, E]
  const Key* keys;         // [E, pools * rows]
  int64_t experts, pools, rows, k;
};

// Where the k-th key is looked for.
template <class Key>
struct Search {
  Key kth;        // what is known of it
  int32_t place;  // of the k-th among the keys that begin so, from 1
};

// Adds the next digit, of which the warps have counted the keys that begin as the k-th does. The
// block's threads call it together.
template <class Key>
__device__ __forceinline__ void narrow_search(Search<Key>& search, int shift,
                                              int32_t (&counts)[kChooseWarps][kDigits]) {
  constexpr int kEach = kDigits / kWarp;
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (thread < kDigits) {
    for (int w = 1; w < kChooseWarps; ++w) counts[0][thread] += counts[w][thread];
  }
  __syncthreads();
  if (thread < kWarp) {  // a lane for kEach digits, the largest first
    const int largest = kDigits - 1 - thread * kEach;
    int32_t mine = 0;
    for (int i = 0; i < kEach; ++i) mine += counts[0][largest - i];
    const int32_t place = search.place;
    int32_t above = warp_scan(mine) - mine;  // all lanes have read the place
    if (above < place && place <= above + mine) {
      int digit = largest;
      for (; above + counts[0][digit] < place; --digit) above += counts[0][digit];
      search = {static_cast<Key>(search.kth | static_cast<Key>(digit) << shift), place - above};
    }
  }
  __syncthreads();  // all read the search next
}

// A block for each expert and pool. Reads its keys once for each digit, and twice to take them.
template <class A, class Key>
__global__ void __launch_bounds__(kChooseThreads) choose_kernel(Turns<A, Key> t) {
  auto& counts = shared<int32_t[kChooseWarps][kDigits]>();
  auto& search = shared<Search<Key>>();
  const int64_t e = blockIdx.x / t.pools, pool = blockIdx.x % t.pools;
  const Key* keys = t.keys + (e * t.pools + pool) * t.rows;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  // Rows of a warp, which follow each other.
  const int64_t share = (t.rows + kChooseWarps - 1) / kChooseWarps;
  const int64_t begin = warp * share < t.rows ? warp * share : t.rows;
  const int64_t end = begin + share < t.rows ? begin + share : t.rows;
  if (threadIdx.x == 0) search = {0, static_cast<int32_t>(t.k)};
  for (int shift = 8 * int{sizeof(Key)} - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int d = lane_of_warp(); d < kDigits; d += kWarp) counts[warp][d] = 0;
    __syncthreads();  // also: thread 0 or the lane that found the digit wrote the search
    const Key kth = search.kth >> shift;
    const auto digit = [=](int64_t i) {
      const Key key = keys[i] >> shift;
      return key >> kDigitBits == kth >> kDigitBits ? static_cast<int>(key & Key{kDigits - 1}) : -1;
    };
    for_items(begin, end, digit, [&](int64_t, int d) { count_lanes(counts[warp], d); });
    narrow_search(search, shift, counts);
  }
  const Key kth = search.kth;
  const int32_t ties =
      search.place;  // so many of those equal to the k-th are taken, the first ones
  const auto kind = [=](int64_t i) { return keys[i] > kth ? 1 : keys[i] == kth ? 0 : -1; };
  int32_t larger = 0, equal = 0;
  for_items(begin, end, kind, [&](int64_t, int what) {
    larger += __popc(__ballot_sync(kAllLanes, what == 1));
    equal += __popc(__ballot_sync(kAllLanes, what == 0));
  });
  if (lane_of_warp() == 0) {
    counts[warp][0] = larger;
    counts[warp][1] = equal;
  }
  __syncthreads();
  larger = equal = 0;  // of the warps before
  for (int w = 0; w < warp; ++w) {
    larger += counts[w][0];
    equal += counts[w][1];
  }
  const int64_t first = (e * t.pools + pool) * t.k;
  int32_t taken = larger + (equal < ties ? equal : ties);
  for_items(begin, end, kind, [&](int64_t i, int what) {
    const unsigned equals = __ballot_sync(kAllLanes, what == 0);
    const bool takes = what == 1 || (what == 0 && equal + peers_before(equals) < ties);
    const unsigned all = __ballot_sync(kAllLanes, takes);
    if (takes) {
      const int64_t at = first + taken + peers_before(all), row = pool * t.rows + i;
      t.source[at] = static_cast<int32_t>(row);
      t.gate[at] = static_cast<int32_t>(row * t.experts + e);
    }
    equal += __popc(equals);
    taken += __popc(all);
  });
  if (threadIdx.x == 0) t.kth[pool * t.experts + e] = of_sort_key(kth);
}

// The rows that an expert takes of a pool, by falling key instead of by index: each goes to the
// place that the number of larger ones says. Some blocks for each expert and pool. Its time
// grows with the square of k, which no model's run asks for.
template <class A, class Key>
__global__ void __launch_bounds__(kPlanThreads)
    by_affinity_kernel(Turns<A, Key> t, const int32_t* by_time) {
  auto& tile = shared<Key[kPlanThreads]>();
  const int64_t blocks = (t.k + kPlanThreads - 1) / kPlanThreads, turn = blockIdx.x / blocks;
  const int64_t e = turn / t.pools, first = turn * t.k;
  const Key* keys = t.keys + e * t.pools * t.rows;
  const int64_t mine = blockIdx.x % blocks * kPlanThreads + threadIdx.x;
  const int32_t row = mine < t.k ? by_time[first + mine] : 0;
  const Key key = keys[row];
  int64_t before = 0;
  for (int64_t j0 = 0; j0 < t.k; j0 += kPlanThreads) {
    const int64_t j = j0 + threadIdx.x;
    if (j < t.k) tile[threadIdx.x] = keys[by_time[first + j]];
    __syncthreads();
    const int64_t many = t.k - j0 < kPlanThreads ? t.k - j0 : kPlanThreads;
    for (int i = 0; i < many; ++i) {
      if (tile[i] > key || (tile[i] == key && j0 + i < mine)) ++before;
    }
    __syncthreads();
  }
  if (mine >= t.k) return;
  t.source[first + before] = row;
  t.gate[first + before] = static_cast<int32_t>(row * t.experts + e);
}

template <class A, class Key>
void choose(ExpertChoice& choice, const Tensor& scores, const ExpertChoiceRule& rule) {
  const int64_t M = scores.dim(0), E = scores.dim(1), pools = choice.kth.dim(0), k = choice.k;
  static_assert(sizeof(Key) == sizeof(A));  // so they have place in a tensor of scores
  Tensor key_rows = scores.like({E, M}, scores.dtype(), "expert_choice.keys");
  auto* keys = reinterpret_cast<Key*>(key_rows.device_data<A>());
  score_keys<A>(keys, scores);
  Turns<A, Key> turns{choice.plan.source.device_data<int32_t>(),
                      choice.plan.gate.device_data<int32_t>(),
                      choice.kth.device_data<A>(),
                      keys,
                      E,
                      pools,
                      rule.pool_rows,
                      k};
  Tensor by_time;
  if (rule.order == SlotOrder::kAffinity) {
    by_time = choice.plan.source.like("expert_choice.by_time");
    turns.source = by_time.device_data<int32_t>();
  }
  launch<choose_kernel<A, Key>>(
      {.blocks = dim3(static_cast<unsigned>(E * pools)), .threads = dim3(kChooseThreads)},
      scores.stream(), turns);
  if (by_time.empty()) return;
  const int32_t* from = std::exchange(turns.source, choice.plan.source.device_data<int32_t>());
  Grid grid = plan_grid(k);
  grid.blocks.x *= static_cast<unsigned>(E * pools);
  launch<by_affinity_kernel<A, Key>>(grid, scores.stream(), turns, from);
}

// Slots for elements of [M, E], by what an element says.
template <class A>
struct AboveThreshold {
  const A *scores, *threshold;
  int experts;

  __device__ int operator()(int64_t i) const {
    const int e = static_cast<int>(i) % experts;
    return scores[i] >= threshold[e] ? e : -1;
  }

  [[nodiscard]] __device__ int32_t row(int64_t i) const { return static_cast<int>(i) / experts; }

  [[nodiscard]] __device__ int32_t gate(int64_t i) const { return static_cast<int32_t>(i); }
};

template <class A>
struct Positive {
  const A* logits;
  int experts;

  __device__ int operator()(int64_t i) const {
    return logits[i] > 0 ? static_cast<int>(i) % experts : -1;
  }

  [[nodiscard]] __device__ int32_t row(int64_t i) const { return static_cast<int>(i) / experts; }

  [[nodiscard]] __device__ int32_t gate(int64_t i) const { return static_cast<int32_t>(i); }
};

struct Marked {
  const uint8_t* mask;
  int experts;

  __device__ int operator()(int64_t i) const {
    return mask[i] != 0 ? static_cast<int>(i) % experts : -1;
  }

  [[nodiscard]] __device__ int32_t row(int64_t i) const { return static_cast<int>(i) / experts; }

  [[nodiscard]] __device__ int32_t gate(int64_t i) const { return static_cast<int32_t>(i); }
};

__global__ void __launch_bounds__(kPlanThreads)
    mark_gates_kernel(uint8_t* member, const int32_t* gate, int64_t slots) {
  const int64_t s = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (s < slots && gate[s] >= 0) member[gate[s]] = 1;
}

// The slots that take some rows, of a plan by expert whose gates say which expert that is.
struct OfRows {
  const int32_t *source, *of_slot;
  int first, rows, experts;

  __device__ int operator()(int64_t s) const {
    const int at = source[s] - first, expert = of_slot[s] % experts;
    return 0 <= at && at < rows ? expert : -1;
  }

  [[nodiscard]] __device__ int32_t row(int64_t s) const { return source[s] - first; }

  [[nodiscard]] __device__ int32_t gate(int64_t s) const { return of_slot[s] - first * experts; }
};

}  // namespace

void expert_choice(ExpertChoice& choice, const Tensor& scores, const ExpertChoiceRule& rule) {
  dispatch(scores.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    choose<A, decltype(sort_key(A()))>(choice, scores, rule);
  });
}

SlotPlan slots_of(const SlotPlan& plan, int64_t first, int64_t rows) {
  const int64_t E = plan.groups.count(), S = plan.source.count();
  const OfRows of{plan.source.device_data<int32_t>(), plan.gate.device_data<int32_t>(),
                  static_cast<int>(first), static_cast<int>(rows), static_cast<int>(E)};
  return plan_of(plan.source, S, E, rows, std::min(S, rows * E), of);
}

SlotPlan slots_by_threshold(const Tensor& scores, const Tensor& threshold) {
  const int64_t M = scores.dim(0), E = scores.dim(1);
  return dispatch(scores.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const AboveThreshold<A> of{scores.device_data<A>(), threshold.device_data<A>(),
                               static_cast<int>(E)};
    return plan_of(scores, M * E, E, M, M * E, of);
  });
}

SlotPlan slots_of_mask(const Tensor& mask) {
  const int64_t M = mask.dim(0), E = mask.dim(1);
  return plan_of(mask, M * E, E, M, M * E,
                 Marked{mask.device_data<uint8_t>(), static_cast<int>(E)});
}

SlotPlan slots_of_positive(const Tensor& logits) {
  const int64_t M = logits.dim(0), E = logits.dim(1);
  return dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    return plan_of(logits, M * E, E, M, M * E,
                   Positive<A>{logits.device_data<A>(), static_cast<int>(E)});
  });
}

void mark_gates(Tensor& member, const Tensor& gate) {
  member.fill_zero();
  launch<mark_gates_kernel>(plan_grid(gate.count()), gate.stream(), member.device_data<uint8_t>(),
                            gate.device_data<int32_t>(), gate.count());
}

}  // namespace anabranch::cuda
