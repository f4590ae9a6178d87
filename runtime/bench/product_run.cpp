#include "runtime/bench/product_run.h"

#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/ops/attention.h"
#include "core/ops/gemm.h"
#include "core/ops/grouped_linear.h"
#include "core/ops/linear_cross_entropy.h"
#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

DType type_of(const Product& p, DType type) { return p.wide ? accumulator_of(type) : type; }

Groups even_groups(int64_t rows, int64_t count) {
  Groups groups;
  for (int64_t e = 1; e <= count; ++e) groups.offsets.push_back(e * rows / count);
  return groups;
}

// The seven products of one head, by blocks of queries: s = k q^T, y += v^T s; and backward s
// again, dp = v dy^T, dv += s dy, dk += dp q, dq += k^T dp.
template <class T>
void products_of_head(const T* x, const T* p, Accumulator<T>* sums, const AttentionProduct& a) {
  constexpr int64_t kQueries = 64;
  const int64_t width = a.head_width;
  for (int64_t i = 0; i < a.tokens; i += kQueries) {
    const int64_t queries = std::min(kQueries, a.tokens - i);
    const int64_t first = a.window > 0 ? std::max<int64_t>(i - a.window + 1, 0) : 0;
    const int64_t keys = a.before + i + queries - first;
    const T *const q = x + (a.before + i) * width, *const k = x + first * width;
    const cpu::GemmShape scores{keys, queries, width, false, true, false};
    const cpu::GemmShape gathered{width, queries, keys, true, false, true};
    const cpu::GemmShape spread{keys, width, queries, false, false, true};
    for (const cpu::GemmShape& s : {scores, scores, scores}) cpu::gemm(sums, k, q, s);
    for (const cpu::GemmShape& s : {gathered, gathered}) cpu::gemm(sums, k, p, s);
    for (const cpu::GemmShape& s : {spread, spread}) cpu::gemm(sums, p, q, s);
  }
}

// The first key that each token of a window sees, of every sequence.
Tensor window_starts(const AttentionProduct& p, const std::shared_ptr<Pool>& pool) {
  Tensor starts({p.sequences, p.tokens}, DType::kI32);
  for (int64_t i = 0; i < starts.count(); ++i) {
    starts.data<int32_t>()[i] =
        static_cast<int32_t>(std::max<int64_t>(i % p.tokens - p.window + 1, 0));
  }
  return starts.copy_in(pool);
}

template <class F>
double median_seconds(F&& f) {
  return median(seconds_of(3, f));
}

}  // namespace

ProductCost cost_of(const Product& p, int64_t rows, DType type) {
  const int64_t x = rows * p.in, y = rows * p.out, w = p.groups * p.out * p.in;
  const int64_t own = size_of(type_of(p, type)), sums = size_of(accumulator_of(type));
  return {2 * static_cast<double>(x) * static_cast<double>(p.out),
          static_cast<double>((x + y + w) * own),
          static_cast<double>((x + y) * own + 2 * w * sums)};
}

ProductRun::ProductRun(const Product& p, int64_t rows, DType type,
                       const std::shared_ptr<Pool>& pool)
    : groups_(even_groups(rows, p.groups)) {
  const DType own = type_of(p, type), sums = accumulator_of(type);
  const Shape matrices = p.groups > 1 ? Shape{p.groups, p.out, p.in} : Shape{p.out, p.in};
  x_ = random_values({rows, p.in}, own, pool);
  w_ = random_values(matrices, own, pool);
  y_ = random_values({rows, p.out}, p.role == ProductRole::kHead ? sums : own, pool);
  dx_ = random_values({rows, p.in}, own, pool);
  dy_ = random_values({rows, p.out}, own, pool);
  dw_ = random_values(matrices, sums, pool);
}

void ProductRun::y() {
  if (groups_.count() > 1) return grouped_linear_forward(y_, x_, w_, groups_);
  gemm(y_, x_, w_, {.transpose_b = true});
}

void ProductRun::dx() {
  if (groups_.count() == 1) return gemm(dx_, dy_, w_);
  GradSink sink{dx_, false};
  grouped_linear_backward(sink, dy_, w_, groups_);
}

void ProductRun::dw() {
  if (groups_.count() == 1) {
    return gemm(dw_, dy_, x_, {.transpose_a = true, .accumulate = true});
  }
  GradSink sink{dw_, true};
  grouped_linear_weight_backward(sink, dy_, x_, groups_);
}

double ProductRun::flops() const {
  return 2 * static_cast<double>(x_.count()) * static_cast<double>(y_.dim(1));
}

int64_t rows_at_once(const Product& p, DType type) {
  if (p.role != ProductRole::kHead) return p.rows;
  return cpu::cross_entropy_rows(p.rows, p.out, accumulator_of(type));
}

AttentionRun::AttentionRun(const AttentionProduct& p, DType type, const std::shared_ptr<Pool>& pool)
    : product_(p) {
  const int64_t keys = p.before + p.tokens, rows = p.sequences * keys, C = p.heads * p.head_width;
  qkv_ = random_values({rows, 3 * C}, type, pool);
  dy_ = random_values({rows, C}, type, pool);
  if (p.window > 0) first_key_ = window_starts(p, pool);
  keys_ = random_values({keys, p.head_width}, type, pool);
  scores_ = random_values({keys * std::max<int64_t>(p.head_width, 64)}, type, pool);
}

void AttentionRun::products() const {
  const int64_t heads = product_.sequences * product_.heads;
  dispatch(keys_.dtype(), [&]<class T>() {
    parallel_for(heads, 1, [&](int64_t begin, int64_t end) {
      Tensor sums = scores_.like(scores_.shape(), kDTypeOf<Accumulator<T>>, "bench");
      sums.fill_zero();
      for (int64_t i = begin; i < end; ++i) {
        products_of_head(keys_.data<T>(), scores_.data<T>(), sums.data<Accumulator<T>>(), product_);
      }
    });
  });
}

Var AttentionRun::forward(Tape* tape) const {
  const Var x = tape != nullptr ? tape->input(qkv_) : Var(qkv_);
  return attention(x, product_.sequences, product_.heads, first_key_);
}

void AttentionRun::op() const {
  Tape tape;
  tape.backward(forward(&tape), dy_);
}

ProductSeconds time_products(const Products& products, DType type,
                             const std::shared_ptr<Pool>& pool) {
  ProductSeconds seconds;
  for (const Product& p : products.linear) {
    const int64_t rows = rows_at_once(p, type);
    ProductRun run(p, rows, type, pool);
    const double calls =
        static_cast<double>(p.count * p.rows) / static_cast<double>(std::max<int64_t>(rows, 1));
    seconds.linear += calls * median_seconds([&] { run.all(); });
  }
  for (const AttentionProduct& p : products.attention) {
    const auto count = static_cast<double>(p.count);
    const AttentionRun run(p, type, pool);
    seconds.attention += count * median_seconds([&] { run.products(); });
    seconds.whole_attention += count * median_seconds([&] { run.op(); });
  }
  return seconds;
}

}  // namespace anabranch
