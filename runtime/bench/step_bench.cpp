#include "runtime/bench/step_bench.h"

#include <algorithm>
#include <chrono>

#include "core/base/philox.h"
#include "core/ops/attention.h"
#include "core/ops/gemm.h"
#include "monitoring/process.h"
#include "parallel/grad_reducer.h"
#include "runtime/config/validate.h"
#include "runtime/models/registry.h"
#include "runtime/training_state.h"

namespace anabranch {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Random ids below `vocabulary`.
Tensor random_ids(int64_t B, int64_t T, int64_t vocabulary, uint64_t seed,
                  const std::shared_ptr<Pool>& pool) {
  Tensor ids({B, T}, DType::kI32, pool, "batch");
  for (int64_t i = 0; i < ids.count(); ++i) {
    const uint64_t word = philox(seed, static_cast<uint64_t>(i))[0];
    ids.data<int32_t>()[i] = static_cast<int32_t>(word * static_cast<uint64_t>(vocabulary) >> 32U);
  }
  return ids;
}

Tensor zeros(Shape shape, DType type, const std::shared_ptr<Pool>& pool) {
  Tensor t(shape, type, pool, "bench");
  t.fill_zero();
  return t;
}

template <class F>
double best_of_three(F&& f) {
  double best = 1e300;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    f();
    best = std::min(best, seconds_since(begin));
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

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

StepBench bench_step(const Config& config, int64_t vocabulary, int64_t warmup, int64_t steps,
                     Group& world, RankContext& context) {
  const BatchPlan plan = plan_batch(config, world.size());
  const auto model = make_model(config, vocabulary);
  const Mesh mesh(world, mesh_shape(world.size(), 1, 1));
  TrainingState state(
      *model, config,
      {static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20)), world.size(), world.size()},
      context.pool);
  GradReducer reducer(state.store(), mesh,
                      config.train.grad_wire == GradWire::kBf16 ? DType::kBF16 : DType::kF32);
  const int64_t B = config.train.micro_batch, T = config.model.context;
  const auto seed = static_cast<uint64_t>(world.rank());
  const MicroBatch batch{random_ids(B, T, vocabulary, 2 * seed, context.pool),
                         random_ids(B, T, vocabulary, 2 * seed + 1, context.pool), 0};

  StepBench result;
  std::vector<double> waits, hidden;
  for (int64_t s = 0; s < warmup + steps; ++s) {
    world.barrier();
    const auto begin = Clock::now();
    state.store().forget_grads();
    for (int64_t j = 0; j < plan.accumulation; ++j) {
      Tape tape;
      if (j + 1 == plan.accumulation) {
        reducer.arm();
        tape.on_grad_ready = [&](Param& w) { reducer.ready(w); };
      }
      const StepKey key{1, s};
      tape.backward(model->loss(tape, batch, key, 1.0 / static_cast<double>(B * T)));
    }
    const auto reduced = Clock::now();
    reducer.finish();
    const double wait = seconds_since(reduced);
    state.optimizer().step(config.optim.lr, state.optimizer().grad_norm());
    if (s < warmup) continue;
    result.seconds.push_back(seconds_since(begin));
    waits.push_back(wait);
    hidden.push_back(reducer.times().hidden());
  }
  result.comm_wait_seconds = median(waits);
  result.hidden = median(hidden);
  result.parameters = state.store().parameter_count();
  result.pool_peak_bytes = context.pool->usage().peak;
  result.resident_peak_bytes = resident_peak_bytes();
  result.tokens_per_step = config.train.batch_tokens;
  result.flops_per_step =
      model->cost().flops_per_token * static_cast<double>(config.train.batch_tokens);
  const auto accumulation = static_cast<double>(plan.accumulation);
  result.product_seconds = accumulation * linear_seconds(config, vocabulary, context.pool);
  result.attention_seconds = accumulation * attention_seconds(config, context.pool);
  return result;
}

}  // namespace anabranch
