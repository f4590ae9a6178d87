#include <cmath>
#include <utility>

#include <climits>

#include "core/ops/logit_rows.cuh"
#include "core/ops/slot_plan.cuh"
#include "core/ops/sort_key.h"
#include "core/ops/top_k_route.h"

namespace anabranch::cuda {
namespace {

// What the kernels on rows read.
template <class T>
struct Rows {
  const T* logits;
  const int32_t* expert;
  int64_t rows;
  int experts, k, lanes;
  bool all;  // whether gates are shares among all experts, or among those chosen

  Rows(const Tensor& s, const Tensor& chosen, GateForm form)
      : logits(s.device_data<T>()),
        expert(chosen.device_data<int32_t>()),
        rows(s.dim(0)),
        experts(static_cast<int>(s.dim(1))),
        k(static_cast<int>(chosen.dim(1))),
        lanes(lanes_for(s.dim(1))),
        all(form == GateForm::kProbability) {}

  // The softmax of whose parts a row's gates are; the lanes ask together.
  [[nodiscard]] __device__ RowSoftmax<T> softmax(const LaneRow& at, int best) const {
    const T* s = logits + at.row * experts;
    const int32_t* chosen = expert + at.row * k;
    const T largest = s[best];
    T sum = 0;
    if (all) {
      for (int e = at.lane; e < experts; e += lanes) sum += std::exp(s[e] - largest);
    } else if (at.here) {
      for (int c = at.lane; c < k; c += lanes) sum += std::exp(s[chosen[c]] - largest);
    }
    return {largest, group_sum(sum, lanes)};
  }
};

template <class Key>
struct Candidate {
  Key key;
  int expert;

  [[nodiscard]] __device__ bool before(const Candidate& other) const {
    return key != other.key ? key > other.key : expert < other.expert;
  }
};

// Some lanes for each row. Reads the logits once, and k times from the cache.
template <class T>
__global__ void __launch_bounds__(kLogitThreads)
    top_k_kernel(int32_t* expert, T* gates, Rows<T> k) {
  using Best = Candidate<decltype(sort_key(T()))>;
  const LaneRow at = lane_row(k.rows, k.lanes);
  const T* s = k.logits + at.row * k.experts;
  Best last{};
  int first = 0;
  for (int c = 0; c < k.k; ++c) {
    Best best{0, INT_MAX};
    for (int e = at.lane; e < k.experts; e += k.lanes) {
      const Best mine{sort_key(s[e]), e};
      if ((c == 0 || last.before(mine)) && mine.before(best)) best = mine;
    }
    for (int distance = k.lanes / 2; distance > 0; distance /= 2) {
      const Best other{__shfl_xor_sync(kAllLanes, best.key, distance),
                       __shfl_xor_sync(kAllLanes, best.expert, distance)};
      if (other.before(best)) best = other;
    }
    last = best;
    if (c == 0) first = best.expert;
    // The lane that reads it below.
    if (at.here && c % k.lanes == at.lane) expert[at.row * k.k + c] = best.expert;
  }
  const RowSoftmax<T> p = k.softmax(at, first);
  if (!at.here) return;
  for (int64_t c = at.lane; c < k.k; c += k.lanes) {
    const int64_t i = at.row * k.k + c;
    gates[i] = p.of(s[expert[i]]);
  }
}

template <class T>
struct RouteGradients {
  T* dlogits;
  const T *dgates, *dselected;  // either may be null
  const int32_t* slot;
  bool accumulate;
};

// Reads the logits, reads or writes their gradient once, and the chosen ones of both once more.
template <class T>
__global__ void __launch_bounds__(kLogitThreads)
    route_backward_kernel(RouteGradients<T> g, Rows<T> k) {
  const LaneRow at = lane_row(k.rows, k.lanes);
  const T* s = k.logits + at.row * k.experts;
  const int64_t first = at.row * k.k;  // choice
  const RowSoftmax<T> p = k.softmax(at, k.expert[first]);
  const auto dgate = [&](int64_t i) { return g.slot[i] >= 0 ? g.dgates[i] : T(0); };
  T mean = 0;  // of the gates' gradients under p
  if (g.dgates != nullptr) {
    for (int c = at.lane; c < k.k; c += k.lanes) {
      mean += dgate(first + c) * p.of(s[k.expert[first + c]]);
    }
  }
  mean = group_sum(mean, k.lanes);
  T* ds = g.dlogits + at.row * k.experts;
  if (at.here) {
    for (int e = at.lane; e < k.experts; e += k.lanes) {
      T sum = g.accumulate ? ds[e] : T(0);
      if (k.all && g.dgates != nullptr) sum -= p.of(s[e]) * mean;
      ds[e] = sum;
    }
  }
  __syncwarp();  // other lanes add to what was written
  if (!at.here) return;
  for (int c = at.lane; c < k.k; c += k.lanes) {
    const int64_t i = first + c;
    const int e = k.expert[i];
    T sum = ds[e];
    if (g.dselected != nullptr && g.slot[i] >= 0) sum += g.dselected[g.slot[i]];
    if (g.dgates != nullptr) sum += p.of(s[e]) * (k.all ? dgate(i) : dgate(i) - mean);
    ds[e] = sum;
  }
}

// All choices in the order in which they are served: a pool's first ones, its second ones, ..
struct ServiceOrder {
  const int32_t* expert;
  unsigned pool, k;  // rows of a pool

  [[nodiscard]] __device__ int64_t choice(int64_t item) const {
    const auto segment = static_cast<unsigned>(item) / pool,
               row = static_cast<unsigned>(item) % pool;
    return (int64_t{segment / k} * pool + row) * k + segment % k;
  }

  __device__ int operator()(int64_t item) const { return expert[choice(item)]; }
};

// Whether there is room for a choice: slot = 0 or -1.
struct Admit {
  ServiceOrder order;
  int32_t* slot;
  const int32_t* table;     // of the partition in the order of service
  int64_t tiles, of_rank;   // all, and those of the items that are counted among themselves
  int64_t items, capacity;  // items: as many as those tiles have
  const int64_t* before;    // [k, E], or null: what is served before each segment
  int experts;

  __device__ void operator()(int64_t item, int e, int32_t at) const {
    int64_t served = at - table[e * tiles + item / items * of_rank];
    if (before != nullptr) served += before[item / items * experts + e];
    slot[order.choice(item)] = served < capacity ? 0 : -1;
  }
};

// The choices that have a slot, by row.
struct Served {
  const int32_t *expert, *slot;  // slot: null: all have one

  __device__ int operator()(int64_t i) const {
    return slot != nullptr && slot[i] < 0 ? -1 : expert[i];
  }
};

template <class T>
struct PlaceChoice {
  int32_t *slot, *source, *gate;
  T* selected;
  const T* logits;
  int k, experts;

  __device__ void operator()(int64_t i, int e, int32_t at) const {
    const int64_t row = static_cast<int>(i) / k;
    slot[i] = at;
    source[at] = static_cast<int32_t>(row);
    gate[at] = static_cast<int32_t>(i);
    selected[at] = logits[row * experts + e];
  }
};

// to[part, e] = the items of bucket e among those of each `tiles_of_part` tiles.
__global__ void __launch_bounds__(kPlanThreads)
    counts_kernel(int64_t* to, const int32_t* table, int64_t count, int64_t experts, int64_t tiles,
                  int64_t tiles_of_part) {
  const int64_t i = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (i >= count) return;
  const int32_t* begin = table + i % experts * tiles + i / experts * tiles_of_part;
  to[i] = begin[tiles_of_part] - begin[0];
}

// What no choice wrote: the logits of unused slots, and the gates of dropped choices.
template <class T>
__global__ void __launch_bounds__(kPlanThreads)
    finish_kernel(PlaceChoice<T> p, T* gates, const int32_t* used, int64_t slots, int64_t choices) {
  const int64_t i = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (i < slots && i >= *used) p.selected[i] = 0;
  if (i < choices && p.slot[i] < 0) gates[i] = 0;
}

// What is to be routed.
struct Choices {
  int64_t rows, k, experts, pool, pools;

  Choices(const Tensor& logits, const TopKRule& rule)
      : rows(logits.dim(0)),
        k(rule.k),
        experts(logits.dim(1)),
        pool(rule.pool_rows > 0 ? rule.pool_rows : rows),
        pools(pool > 0 ? rows / pool : 0) {}

  [[nodiscard]] int64_t count() const { return rows * k; }
};

Tensor counts_of(const Tensor& table, const Choices& all, const Tiles& tiles, int64_t parts) {
  Tensor counts = table.like({parts, all.experts}, DType::kI64, "top_k_route.counts");
  launch<counts_kernel>(plan_grid(counts.count()), table.stream(), counts.device_data<int64_t>(),
                        table.device_data<int32_t>(), counts.count(), all.experts, tiles.count(),
                        parts > 0 ? tiles.count() / parts : 0);
  return counts;
}

// With a capacity: drops what finds no room, and counts the demand on the way.
void admit(TopKRoute& route, const Choices& all, const TopKRule& rule) {
  const ServiceOrder order{std::as_const(route.expert).device_data<int32_t>(),
                           static_cast<unsigned>(all.pool), static_cast<unsigned>(all.k)};
  const Tiles tiles(all.pools * all.k, all.pool);
  const Tensor table = partition_table(route.expert, tiles, all.experts, order);
  route.demand = counts_of(table, all, tiles, all.pools);
  Tensor before;
  if (rule.before) before = served_before(rule, counts_of(table, all, tiles, all.k));
  // What is served before a segment is known from others, or is counted from the pool's begin on.
  const int64_t segments = before.empty() ? all.k : 1;
  const Admit admit{order,
                    route.slot.device_data<int32_t>(),
                    table.device_data<int32_t>(),
                    tiles.count(),
                    segments * tiles.of_segment,
                    segments * all.pool,
                    rule.capacity,
                    before.empty() ? nullptr : std::as_const(before).device_data<int64_t>(),
                    static_cast<int>(all.experts)};
  partition_place(table, tiles, all.experts, order, admit);
}

}  // namespace

void top_k(Tensor& expert, Tensor& gates, const Tensor& logits, GateForm form) {
  dispatch(logits.dtype(), [&]<class Any>() {
    using T = Accumulator<Any>;
    const Rows<T> k(logits, expert, form);
    launch<top_k_kernel<T>>(logit_grid(k.rows, k.lanes), logits.stream(),
                            expert.device_data<int32_t>(), gates.device_data<T>(), k);
  });
}

Tensor assign_slots(TopKRoute& route, Tensor& gates, const Tensor& logits, const TopKRule& rule) {
  const Choices all(logits, rule);
  const bool limited = rule.capacity > 0;
  const int64_t room = limited ? all.pools * all.experts * rule.capacity : all.count();
  const int64_t S = std::min(all.count(), room);
  const auto ints = [&](Shape shape, const char* tag) {
    return logits.like(shape, DType::kI32, tag);
  };
  route.slot = ints({all.rows, all.k}, "top_k_route.slot");
  route.plan = {all.rows, {}, ints({S}, "top_k_route.source"), ints({S}, "top_k_route.gate")};
  Tensor selected = logits.like({S}, logits.dtype(), "top_k_route.selected");
  if (limited) admit(route, all, rule);
  const Tiles tiles = limited ? Tiles(1, all.count()) : Tiles(all.pools, all.pool * all.k);
  const Served served{std::as_const(route.expert).device_data<int32_t>(),
                      limited ? std::as_const(route.slot).device_data<int32_t>() : nullptr};
  const Tensor table = partition_table(logits, tiles, all.experts, served);
  if (!limited) route.demand = counts_of(table, all, tiles, all.pools);
  route.plan.groups = groups_of(table, tiles, all.experts, S);
  dispatch(logits.dtype(), [&]<class Any>() {
    using T = Accumulator<Any>;
    const PlaceChoice<T> place{route.slot.device_data<int32_t>(),
                               route.plan.source.device_data<int32_t>(),
                               route.plan.gate.device_data<int32_t>(),
                               selected.device_data<T>(),
                               logits.device_data<T>(),
                               static_cast<int>(all.k),
                               static_cast<int>(all.experts)};
    partition_place(table, tiles, all.experts, served, place);
    if (!limited) return;
    clear_unused(route.plan, table);
    const auto* used = table.device_data<int32_t>() + table.count() - 1;
    launch<finish_kernel<T>>(plan_grid(all.count()), logits.stream(), place, gates.device_data<T>(),
                             used, S, all.count());
  });
  return selected;
}

void top_k_route_backward(GradSink& dlogits, const Tensor* dgates, const Tensor* dselected,
                          const Tensor& logits, const TopKRoute& route, GateForm form) {
  dispatch(logits.dtype(), [&]<class Any>() {
    using T = Accumulator<Any>;
    const RouteGradients<T> g{dlogits.out.device_data<T>(),
                              dgates != nullptr ? dgates->device_data<T>() : nullptr,
                              dselected != nullptr ? dselected->device_data<T>() : nullptr,
                              route.slot.device_data<int32_t>(), dlogits.accumulate};
    const Rows<T> k(logits, route.expert, form);
    launch<route_backward_kernel<T>>(logit_grid(k.rows, k.lanes), logits.stream(), g, k);
  });
}

}  // namespace anabranch::cuda
