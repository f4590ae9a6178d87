#include "core/ops/attention_head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/ops/attention_bf16.h"
#include "core/ops/attention_pack.h"
#include "core/ops/attention_tile.h"

namespace anabranch::cpu {
namespace {

template <class A>
[[nodiscard]] int64_t padded(int64_t n) {
  return (n + kVector<A> - 1) / kVector<A> * kVector<A>;
}

// Hands out parts of the scratch, each aligned.
template <class A>
class Arena {
 public:
  explicit Arena(A* at) : at_(at) {}

  A* take(int64_t count) {
    A* const part = at_;
    at_ += padded<A>(count);
    return part;
  }

 private:
  A* at_;
};

// Scores are kept in units of log 2, so that their exponential is a power of 2.
template <class A>
[[nodiscard]] A score_scale(int64_t width) {
  return static_cast<A>(std::numbers::log2e_v<double> / std::sqrt(static_cast<double>(width)));
}

// Keys begin .. end - 1 of a tile, seen by none but the lanes lane .. lane_end - 1.
struct Run {
  int64_t begin, end, lane, lane_end;
};

// Calls f(run) for runs of keys that are seen by the same vectors of lanes: on the diagonal, where
// documents meet and at the edges of windows this leaves out what no lane sees.
template <class A, class F>
void for_each_run(const Scores<A>& tile, const F& f) {
  for (Run run{}; run.begin < tile.keys; run.begin = run.end) {
    const int64_t place = tile.offset + run.begin;
    int64_t last = 0;  // place that a lane of the first vector sees
    if (tile.last == nullptr) {
      run.lane = std::max<int64_t>(0, place) / kVector<A> * kVector<A>;
      last = run.lane + kVector<A> - 1;
    } else {
      while (tile.last[run.lane + kVector<A> - 1] < static_cast<A>(place)) run.lane += kVector<A>;
      last = static_cast<int64_t>(tile.last[run.lane + kVector<A> - 1]);
    }
    run.end = std::min(tile.keys, last + 1 - tile.offset);
    run.lane_end = tile.lanes;
    if (tile.first != nullptr) {
      int64_t lane = run.lane + kVector<A>;
      while (lane < tile.lanes && tile.first[lane] <= static_cast<A>(place)) lane += kVector<A>;
      run.lane_end = lane;
      if (lane < tile.lanes) {
        run.end = std::min(run.end, static_cast<int64_t>(tile.first[lane]) - tile.offset);
      }
    }
    f(run);
  }
}

// s^T = a q^T over the keys of a tile, from rows a [keys, width] and lanes q [width, kQueryTile].
template <class A>
void multiply_scores(const Scores<A>& tile, A* to, const A* a, const A* q, int64_t width) {
  constexpr int64_t kRow = kQueryTile<A>;
  for_each_run(tile, [=](const Run& run) {
    multiply_rows(Product<A>{.m = run.end - run.begin,
                             .n = run.lane_end - run.lane,
                             .k = width,
                             .a = a + run.begin * width,
                             .a_stride = width,
                             .b = q + run.lane,
                             .b_stride = kRow,
                             .c = to + run.begin * kRow + run.lane,
                             .c_stride = kRow,
                             .accumulate = false});
  });
}

// to[width, kQueryTile] += a^T s^T: what the queries of the tile receive from its keys.
template <class A>
void gather_by_query(const Scores<A>& tile, A* to, const A* s, const A* a, int64_t width) {
  constexpr int64_t kRow = kQueryTile<A>;
  for_each_run(tile, [=](const Run& run) {
    multiply_columns(Product<A>{.m = width,
                                .n = run.lane_end - run.lane,
                                .k = run.end - run.begin,
                                .a = a + run.begin * width,
                                .a_stride = width,
                                .b = s + run.begin * kRow + run.lane,
                                .b_stride = kRow,
                                .c = to + run.lane,
                                .c_stride = kRow,
                                .accumulate = true});
  });
}

// to[keys, padded width] += s^T b: what the keys of the tile receive from its `queries`.
template <class A>
void gather_by_key(const Scores<A>& tile, A* to, const A* s, const A* b, int64_t queries,
                   int64_t width) {
  constexpr int64_t kRow = kQueryTile<A>;
  for_each_run(tile, [=](const Run& run) {
    multiply_rows(Product<A>{.m = run.end - run.begin,
                             .n = width,
                             .k = std::min(queries, run.lane_end) - run.lane,
                             .a = s + run.begin * kRow + run.lane,
                             .a_stride = kRow,
                             .b = b + run.lane * width,
                             .b_stride = width,
                             .c = to + run.begin * width,
                             .c_stride = width,
                             .accumulate = true});
  });
}

// One tile of queries with all its keys, and what it keeps from tile to tile.
template <class A>
struct QueryTile {
  A *q, *o, *s;                // [width, kQueryTile], the same, [kKeyTile, kQueryTile]
  A *max, *sum, *alpha;        // [kQueryTile]
  A *first_keys, *last_keys;   // [kQueryTile], Scores::first and last; null: none
  const A *k, *v;              // [keys, width]
  int64_t begin, end;          // the first key that a query sees, and behind the last
  int64_t first, rows, width;  // position of the first query, counted in keys; number of queries
};

template <class A>
void attend(const QueryTile<A>& tile) {
  constexpr int64_t kRow = kQueryTile<A>;
  std::fill_n(tile.o, tile.width * kRow, A{0});
  std::fill_n(tile.sum, kRow, A{0});
  std::fill_n(tile.max, kRow, -std::numeric_limits<A>::infinity());
  for (int64_t key = tile.begin; key < tile.end; key += kKeyTile) {
    const Scores<A> scores{.s = tile.s,
                           .keys = std::min(kKeyTile, tile.end - key),
                           .lanes = padded<A>(tile.rows),
                           .offset = key - tile.first,
                           .first = tile.first_keys,
                           .last = tile.last_keys};
    multiply_scores(scores, tile.s, tile.k + key * tile.width, tile.q, tile.width);
    if (softmax_step(scores, tile.max, tile.sum, tile.alpha)) {
      scale_lanes(tile.o, tile.width, scores.lanes, tile.alpha);
    }
    gather_by_query(scores, tile.o, tile.s, tile.v + key * tile.width, tile.width);
  }
}

template <class A>
int64_t forward_scratch(int64_t keys, int64_t width) {
  return 2 * padded<A>(keys * width) + (2 * width + kKeyTile + 5) * kQueryTile<A>;
}

template <class T>
void head_forward(const HeadForward<T>& head, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  constexpr int64_t kRow = kQueryTile<A>;
  const int64_t width = head.width, keys = head.past + head.queries;
  Arena<A> arena(scratch);
  A* const k = arena.take(keys * width);
  A* const v = arena.take(keys * width);
  QueryTile<A> tile{.q = arena.take(width * kRow),
                    .o = arena.take(width * kRow),
                    .s = arena.take(kKeyTile * kRow),
                    .max = arena.take(kRow),
                    .sum = arena.take(kRow),
                    .alpha = arena.take(kRow),
                    .first_keys = head.first_key == nullptr ? nullptr : arena.take(kRow),
                    .last_keys = head.last_key == nullptr ? nullptr : arena.take(kRow),
                    .k = k,
                    .v = v,
                    .begin = 0,
                    .end = 0,
                    .first = 0,
                    .rows = 0,
                    .width = width};
  load_rows(k, width, Rows<const T>{head.k, head.kv_stride, keys, width}, A{1});
  load_rows(v, width, Rows<const T>{head.v, head.kv_stride, keys, width}, A{1});
  for (int64_t i = 0; i < head.queries; i += kRow) {
    tile.rows = std::min(kRow, head.queries - i);
    tile.first = head.past + i;
    tile.end = tile.first + tile.rows;
    if (head.first_key != nullptr) {
      tile.begin = head.first_key[i];
      load_bounds(tile.first_keys, head.first_key + i, tile.rows, tile.first);
    }
    if (head.last_key != nullptr) {
      tile.end = head.last_key[i + tile.rows - 1] + 1;
      load_bounds(tile.last_keys, head.last_key + i, tile.rows, tile.first);
    }
    load_lanes(tile.q, Rows<const T>{head.q + i * head.q_stride, head.q_stride, tile.rows, width},
               score_scale<A>(width));
    attend(tile);
    for (int64_t r = 0; r < tile.rows; ++r) {
      if (head.l == nullptr) break;
      head.l[i + r] = (tile.max[r] + std::log2(tile.sum[r])) * std::numbers::ln2_v<A>;
    }
    for (int64_t r = 0; r < kRow; ++r) tile.alpha[r] = 1 / tile.sum[r];
    scale_lanes(tile.o, width, padded<A>(tile.rows), tile.alpha);
    store_lanes(Rows<T>{head.y + i * head.y_stride, head.y_stride, tile.rows, width}, tile.o,
                false);
  }
}

// The tiles of the backward of one head.
template <class A>
struct BackwardTiles {
  BackwardTiles(A* scratch, int64_t tokens, int64_t d) : width(d), row(padded<A>(d)) {
    constexpr int64_t kRow = kQueryTile<A>;
    Arena<A> arena(scratch);
    k = arena.take(tokens * width);
    v = arena.take(tokens * width);
    dk = arena.take(tokens * row);
    dv = arena.take(tokens * row);
    for (A** lanes : {&q_lanes, &do_lanes, &dq_lanes}) *lanes = arena.take(width * kRow);
    for (A** rows : {&q_rows, &do_rows}) *rows = arena.take(kRow * row);
    for (A** scores : {&s, &ds}) *scores = arena.take(kKeyTile * kRow);
    for (A** lane : {&lse, &delta, &first_keys, &last_keys}) *lane = arena.take(kRow);
  }

  int64_t width, row;
  A *k, *v;                          // [tokens, width]
  A *dk, *dv;                        // [tokens, row]
  A *q_lanes, *do_lanes, *dq_lanes;  // [width, kQueryTile]
  A *q_rows, *do_rows;               // [kQueryTile, row]
  A *s, *ds;                         // [kKeyTile, kQueryTile]
  A *lse, *delta;                    // [kQueryTile]
  A *first_keys, *last_keys;         // [kQueryTile], Scores::first and last
};

template <class T>
void load_queries(const BackwardTiles<Accumulator<T>>& t, const HeadBackward<T>& head, int64_t i,
                  int64_t rows) {
  using A = Accumulator<T>;
  const Rows<const T> q{head.q + i * head.qkv_stride, head.qkv_stride, rows, t.width};
  const Rows<const T> dy{head.dy + i * head.y_stride, head.y_stride, rows, t.width};
  const Rows<const T> y{head.y + i * head.y_stride, head.y_stride, rows, t.width};
  const A scale = score_scale<A>(t.width);
  load_lanes(t.q_lanes, q, scale);
  load_lanes(t.do_lanes, dy, A{1});
  load_rows(t.q_rows, t.row, q, scale * std::numbers::ln2_v<A>);  // 1 / sqrt(D), as dk needs it
  load_rows(t.do_rows, t.row, dy, A{1});
  std::fill_n(t.delta, kQueryTile<A>, A{0});
  std::fill_n(t.lse, kQueryTile<A>, A{0});
  dot_rows(t.delta, y, dy);
  for (int64_t r = 0; r < rows; ++r) t.lse[r] = head.l[i + r] * std::numbers::log2e_v<A>;
  std::fill_n(t.dq_lanes, t.width * kQueryTile<A>, A{0});
}

template <class A>
void backward_tile(const BackwardTiles<A>& t, const Scores<A>& scores, int64_t key,
                   int64_t queries) {
  const A* const k = t.k + key * t.width;
  multiply_scores(scores, t.s, k, t.q_lanes, t.width);
  multiply_scores(scores, t.ds, t.v + key * t.width, t.do_lanes, t.width);
  softmax_gradient(scores, t.ds, t.lse, t.delta);
  gather_by_key(scores, t.dv + key * t.row, t.s, t.do_rows, queries, t.row);
  gather_by_key(scores, t.dk + key * t.row, t.ds, t.q_rows, queries, t.row);
  gather_by_query(scores, t.dq_lanes, t.ds, k, t.width);
}

template <class A>
int64_t backward_scratch(int64_t tokens, int64_t width) {
  const int64_t row = padded<A>(width);
  return 2 * padded<A>(tokens * width) + 2 * tokens * row +
         (3 * width + 2 * row + 2 * kKeyTile + 4) * kQueryTile<A>;
}

template <class T>
void head_backward(const HeadBackward<T>& head, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  constexpr int64_t kRow = kQueryTile<A>;
  const int64_t width = head.width, tokens = head.tokens, stride = head.qkv_stride;
  const BackwardTiles<A> t(scratch, tokens, width);
  load_rows(t.k, width, Rows<const T>{head.k, stride, tokens, width}, A{1});
  load_rows(t.v, width, Rows<const T>{head.v, stride, tokens, width}, A{1});
  std::fill_n(t.dk, tokens * t.row, A{0});
  std::fill_n(t.dv, tokens * t.row, A{0});
  const auto scale = static_cast<A>(1 / std::sqrt(static_cast<double>(width)));
  for (int64_t i = 0; i < tokens; i += kRow) {
    const int64_t rows = std::min(kRow, tokens - i);
    load_queries(t, head, i, rows);
    const bool bounded = head.first_key != nullptr, both_ways = head.last_key != nullptr;
    if (bounded) load_bounds(t.first_keys, head.first_key + i, rows, i);
    if (both_ways) load_bounds(t.last_keys, head.last_key + i, rows, i);
    const int64_t end = both_ways ? head.last_key[i + rows - 1] + 1 : i + rows;
    for (int64_t key = bounded ? head.first_key[i] : 0; key < end; key += kKeyTile) {
      const Scores<A> scores{.s = t.s,
                             .keys = std::min(kKeyTile, end - key),
                             .lanes = padded<A>(rows),
                             .offset = key - i,
                             .first = bounded ? t.first_keys : nullptr,
                             .last = both_ways ? t.last_keys : nullptr};
      backward_tile(t, scores, key, rows);
    }
    std::fill_n(t.delta, kRow, scale);
    scale_lanes(t.dq_lanes, width, kRow, t.delta);
    store_lanes(Rows<T>{head.dq + i * stride, stride, rows, width}, t.dq_lanes, head.accumulate);
  }
  store_rows(Rows<T>{head.dk, stride, tokens, width}, t.dk, t.row, head.accumulate);
  store_rows(Rows<T>{head.dv, stride, tokens, width}, t.dv, t.row, head.accumulate);
}

}  // namespace

template <class T>
HeadWorker<T>::HeadWorker(const Tensor& beside, int64_t keys, int64_t width, Pass pass) {
  using A = Accumulator<T>;
  if constexpr (std::is_same_v<T, Bf16>) {
    if (Bf16Heads::fits(keys, width)) {
      bf16_ = std::make_unique<Bf16Heads>(beside, keys, width);
      return;
    }
  }
  const int64_t size =
      pass == Pass::kForward ? forward_scratch<A>(keys, width) : backward_scratch<A>(keys, width);
  scratch_ = beside.like({size}, kDTypeOf<A>, "attention scratch");
}

template <class T>
HeadWorker<T>::~HeadWorker() = default;

template <class T>
void HeadWorker<T>::forward(const HeadForward<T>& head) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (bf16_ != nullptr) return bf16_->forward(head);
  }
  head_forward(head, scratch_.data<Accumulator<T>>());
}

template <class T>
void HeadWorker<T>::backward(const HeadBackward<T>& head) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (bf16_ != nullptr) return bf16_->backward(head);
  }
  head_backward(head, scratch_.data<Accumulator<T>>());
}

template class HeadWorker<float>;
template class HeadWorker<Bf16>;
template class HeadWorker<double>;

}  // namespace anabranch::cpu
