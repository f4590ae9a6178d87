#include "runtime/bench/step_bench.h"

#include <algorithm>

#include "core/ops/attention.h"
#include "core/ops/gemm.h"
#include "monitoring/process.h"
#include "runtime/bench/random_step.h"
#include "runtime/bench/timing.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

Tensor zeros(Shape shape, DType type, const std::shared_ptr<Pool>& pool) {
  Tensor t(shape, type, pool, "bench");
  t.fill_zero();
  return t;
}

template <class F>
double best_of_three(F&& f) {
  double best = 1e300;
  for (int i = 0; i < 3; ++i) {
    const Stopwatch watch;
    f();
    best = std::min(best, watch.seconds());
  }
  return best;
}

// y = x w^T, dx = dy w, dw += dy^T x of one layer, alone.
double products_of(int64_t rows, int64_t in, int64_t out, DType type, DType grads, DType out_type,
                   const std::shared_ptr<Pool>& pool) {
  const Tensor x = zeros({rows, in}, type, pool), w = zeros({out, in}, type, pool);
  Tensor y = zeros({rows, out}, out_type, pool), dx = zeros({rows, in}, type, pool);
  const Tensor dy = zeros({rows, out}, type, pool);
  Tensor dw = zeros({out, in}, grads, pool);
  return best_of_three([&] {
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
  constexpr int64_t kPiece = 1024;
  const int64_t piece = std::min(rows, kPiece);
  const double head = products_of(piece, C, vocabulary, type, grads, grads, pool) *
                      static_cast<double>(rows) / static_cast<double>(piece);
  return block * static_cast<double>(m.layers) + head;
}

double attention_seconds(const Config& c, const std::shared_ptr<Pool>& pool) {
  const ModelConfig& m = c.model;
  const int64_t rows = c.train.micro_batch * m.context;
  const DType type = compute_type(c.train.precision);
  const Tensor qkv = zeros({rows, 3 * m.width}, type, pool);
  const Tensor dy = zeros({rows, m.width}, type, pool);
  return static_cast<double>(m.layers) * best_of_three([&] {
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
      step.model().cost().flops_per_token * static_cast<double>(config.train.batch_tokens);
  const auto accumulation = static_cast<double>(step.plan().accumulation);
  result.product_seconds = accumulation * linear_seconds(config, vocabulary, context.pool);
  result.attention_seconds = accumulation * attention_seconds(config, context.pool);
  return result;
}

}  // namespace anabranch
