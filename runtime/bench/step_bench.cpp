#include "runtime/bench/step_bench.h"

#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/ops/attention.h"
#include "core/ops/gemm.h"
#include "core/ops/linear_cross_entropy.h"
#include "monitoring/process.h"
#include "runtime/bench/random_step.h"
#include "runtime/bench/timing.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

template <class F>
double median_seconds(F&& f) {
  return median(seconds_of(3, f));
}

// y = x w^T, dx = dy w, dw += dy^T x of one layer, alone.
double products_of(int64_t rows, int64_t in, int64_t out, DType type, DType grads, DType out_type,
                   const std::shared_ptr<Pool>& pool) {
  const Tensor x = random_values({rows, in}, type, pool), w = random_values({out, in}, type, pool);
  Tensor y = random_values({rows, out}, out_type, pool), dx = random_values({rows, in}, type, pool);
  const Tensor dy = random_values({rows, out}, type, pool);
  Tensor dw = random_values({out, in}, grads, pool);
  return median_seconds([&] {
    gemm(y, x, w, {.transpose_b = true});
    gemm(dx, dy, w);
    gemm(dw, dy, x, {.transpose_a = true, .accumulate = true});
  });
}

// All linear layers and the head of one micro-batch.
double linear_seconds(const Config& c, int64_t vocabulary, const std::shared_ptr<Pool>& pool) {
  const ModelConfig& m = c.model;
  const int64_t rows = c.train.micro_batch * m.context, C = m.width;
  const DType type = compute_type(c.train.precision), grads = master_type(c.train.precision);
  double block = 0;
  for (const auto& [in, out] : {std::pair{C, 3 * C}, {C, C}, {C, m.ffn_width}, {m.ffn_width, C}}) {
    block += products_of(rows, in, out, type, grads, type, pool);
  }
  // The head works through pieces of rows, so that all logits never exist at once.
  const int64_t piece = cpu::cross_entropy_rows(rows, vocabulary, grads);
  const double head = products_of(piece, C, vocabulary, type, grads, grads, pool) *
                      static_cast<double>(rows) / static_cast<double>(piece);
  return block * static_cast<double>(m.layers) + head;
}

// The seven products of one causal head alone, by blocks of queries as the op has them: s = k q^T,
// y += v^T s; and backward s again, dp = v dy^T, dv += s dy, dk += dp q, dq += k^T dp.
template <class T>
void products_of_head(const T* x, const T* p, Accumulator<T>* sums, int64_t tokens, int64_t width) {
  constexpr int64_t kQueries = 64;
  for (int64_t i = 0; i < tokens; i += kQueries) {
    const int64_t queries = std::min(kQueries, tokens - i), keys = i + queries;
    const T* const q = x + i * width;
    const cpu::GemmShape scores{keys, queries, width, false, true, false};
    const cpu::GemmShape gathered{width, queries, keys, true, false, true};
    const cpu::GemmShape spread{keys, width, queries, false, false, true};
    for (const cpu::GemmShape& s : {scores, scores, scores}) cpu::gemm(sums, x, q, s);
    for (const cpu::GemmShape& s : {gathered, gathered}) cpu::gemm(sums, x, p, s);
    for (const cpu::GemmShape& s : {spread, spread}) cpu::gemm(sums, p, q, s);
  }
}

// Attention's own products of all layers of one micro-batch.
double attention_product_seconds(const Config& c, const std::shared_ptr<Pool>& pool) {
  const ModelConfig& m = c.model;
  const int64_t tokens = m.context, width = m.width / m.heads,
                heads = c.train.micro_batch * m.heads;
  const int64_t most = tokens * std::max<int64_t>(width, 64);
  const DType type = compute_type(c.train.precision), sums = master_type(c.train.precision);
  const Tensor x = random_values({tokens, width}, type, pool),
               p = random_values({most}, type, pool);
  return static_cast<double>(m.layers) * median_seconds([&] {
           dispatch(type, [&]<class T>() {
             parallel_for(heads, 1, [&](int64_t begin, int64_t end) {
               Tensor out = random_values({most}, sums, pool);
               for (int64_t i = begin; i < end; ++i) {
                 products_of_head(x.data<T>(), p.data<T>(), out.data<Accumulator<T>>(), tokens,
                                  width);
               }
             });
           });
         });
}

double attention_seconds(const Config& c, const std::shared_ptr<Pool>& pool) {
  const ModelConfig& m = c.model;
  const int64_t rows = c.train.micro_batch * m.context;
  const DType type = compute_type(c.train.precision);
  const Tensor qkv = random_values({rows, 3 * m.width}, type, pool);
  const Tensor dy = random_values({rows, m.width}, type, pool);
  return static_cast<double>(m.layers) * median_seconds([&] {
           Tape tape;
           const Var x = tape.input(qkv);
           tape.backward(attention(x, c.train.micro_batch, m.heads), dy);
         });
}

}  // namespace

StepBench bench_step(const Config& config, int64_t vocabulary, int64_t warmup, int64_t steps,
                     Group& world, RankContext& context) {
  RandomStep step(config, vocabulary, world, context);
  StepBench result;
  std::vector<double> waits, hidden;
  for (int64_t s = 0; s < warmup + steps; ++s) {
    const RandomStep::Times times = step.run();
    if (s < warmup) continue;
    result.seconds.push_back(times.seconds);
    waits.push_back(times.waited);
    hidden.push_back(times.hidden);
  }
  result.comm_wait_seconds = median(waits);
  result.hidden = median(hidden);
  result.parameters = step.state().store().parameter_count();
  result.pool_peak_bytes = context.pool->usage().peak;
  result.resident_peak_bytes = resident_peak_bytes();
  result.tokens_per_step = config.train.batch_tokens;
  result.flops_per_step =
      step.model().cost().flops_per_token() * static_cast<double>(config.train.batch_tokens);
  if (config.model.type != ModelType::kGpt2) return result;
  result.products_known = true;
  const auto accumulation = static_cast<double>(step.plan().accumulation);
  result.linear_product_seconds = accumulation * linear_seconds(config, vocabulary, context.pool);
  result.attention_product_seconds = accumulation * attention_product_seconds(config, context.pool);
  result.attention_seconds = accumulation * attention_seconds(config, context.pool);
  return result;
}

}  // namespace anabranch
