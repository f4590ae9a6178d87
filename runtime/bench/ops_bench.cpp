#include "runtime/bench/ops_bench.h"

#include <optional>

#include "core/base/philox.h"
#include "core/nn/layers.h"
#include "core/ops/adamw.h"
#include "core/ops/add.h"
#include "core/ops/attention.h"
#include "core/ops/gelu.h"
#include "core/ops/linear_cross_entropy.h"
#include "core/ops/squared_norm.h"
#include "runtime/bench/op_timer.h"
#include "runtime/bench/ops_families.h"
#include "runtime/bench/product_run.h"
#include "runtime/bench/timing.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

constexpr int64_t kMeanDocument = 256;  // tokens

void time_linear(OpTimer& t, const Products& products) {
  for (const Product& p : products.linear) {
    if (p.role == ProductRole::kHead) continue;  // it runs with its loss
    const ProductCost cost = cost_of(p, p.rows, t.type());
    std::optional<ProductRun> run;
    if (t.runs()) run.emplace(p, p.rows, t.type(), t.pool());
    t.time(p.name + " y", cost.flops, cost.row_bytes, [&] { run->y(); });
    t.time(p.name + " dx", cost.flops, cost.row_bytes, [&] { run->dx(); });
    t.time(p.name + " dw", cost.flops, cost.dw_bytes, [&] { run->dw(); });
  }
}

void time_attention(OpTimer& t, const Products& products) {
  for (const AttentionProduct& p : products.attention) {
    std::optional<AttentionRun> run;
    if (t.runs()) run.emplace(p, t.type(), t.pool());
    const int64_t rows = p.sequences * (p.before + p.tokens), C = p.heads * p.head_width;
    // Two products forward and five backward.
    const double product = p.macs() / static_cast<double>(p.count);
    const OpFigures cost{2 * product, t.bytes(4 * rows * C), 5 * product, t.bytes(8 * rows * C)};
    const std::string name = p.window > 0 ? join(p.name, ", window ", p.window) : p.name;
    t.both(name, cost, [&](Tape* tape) { return run->forward(tape); });
  }
}

// Sequences cut from documents of 1 to 2 kMeanDocument - 1 tokens, one after the other.
Tensor document_starts(const OpTimer& t, int64_t T) {
  Tensor starts({t.rows() / T, T}, DType::kI32);
  int64_t start = 0, next = 0;
  for (int64_t n = 0; n < t.rows(); ++n) {
    if (n % T == 0 || n == next) start = n % T;
    if (n == next) next += 1 + philox(2, static_cast<uint64_t>(n))[0] % (2 * kMeanDocument - 1);
    starts.data<int32_t>()[n] = static_cast<int32_t>(start);
  }
  return starts;
}

void time_document_attention(OpTimer& t, const ModelConfig& m) {
  const int64_t N = t.rows(), C = m.width, T = m.context;
  const Tensor qkv = t.activations(3 * C), starts = document_starts(t, T);
  double pairs = 0;
  for (int64_t n = 0; n < N; ++n) {
    pairs += static_cast<double>(n % T - starts.data<int32_t>()[n] + 1);
  }
  const double seen = 2 * pairs * static_cast<double>(C);
  t.both("attention in documents", {2 * seen, t.bytes(4 * N * C), 5 * seen, t.bytes(8 * N * C)},
         [&, there = starts.beside(qkv)](Tape* tape) {
           return attention(OpTimer::on(tape, qkv), N / T, m.heads, there);
         });
}

void time_layer_norms(OpTimer& t, int64_t C) {
  const int64_t N = t.rows();
  LayerNorm norm("norm", C);
  norm.visit([&](Param& w) { t.make(w); });
  const Tensor x = t.activations(C), delta = t.activations(C);
  t.both("layer_norm", {0, t.bytes(2 * N * C), 0, t.bytes(3 * N * C)},
         [&](Tape* tape) { return norm(OpTimer::on(tape, x)); });
  t.both("add_layer_norm", {0, t.bytes(4 * N * C), 0, t.bytes(3 * N * C)},
         [&](Tape* tape) { return norm.add(OpTimer::on(tape, x), OpTimer::on(tape, delta)).norm; });
}

// The product whose epilogue is GELU, as a block runs it; and GELU alone.
void time_gelu(OpTimer& t, const ModelConfig& m) {
  const int64_t N = t.rows(), C = m.width, F = m.ffn_width;
  Linear layer("hidden", C, F, true, Init::normal(0.02F));
  layer.visit([&](Param& w) { t.make(w); });
  const Tensor x = t.activations(C), hidden = t.activations(F);
  const double flops = 2.0 * static_cast<double>(N) * static_cast<double>(C * F);
  t.time("feed-forward in y + gelu", flops, t.bytes(N * (C + 2 * F) + C * F),
         [&] { linear_gelu(x, layer.weight, *layer.bias); });
  t.both("gelu", {0, t.bytes(2 * N * F), 0, t.bytes(3 * N * F)},
         [&](Tape* tape) { return gelu(OpTimer::on(tape, hidden), m.gpt2.gelu); });
}

void time_ends(OpTimer& t, const ModelConfig& m, int64_t V) {
  const int64_t N = t.rows(), C = m.width, T = m.context;
  Param tokens("tokens", {V, C}, Init::normal(0.02F));
  Param places("positions", {T, C}, Init::normal(0.02F));
  t.make(tokens);
  t.make(places);
  const Tensor ids = random_ids({N}, V, 1, t.pool()), targets = random_ids({N}, V, 2, t.pool());
  Tensor places_of({N}, DType::kI32);
  for (int64_t n = 0; n < N; ++n) places_of.data<int32_t>()[n] = static_cast<int32_t>(n % T);
  const Tensor at = places_of.beside(ids);
  const bool learned = m.type != ModelType::kKappaMoe && m.type != ModelType::kMoepMsit;
  const int64_t tables = learned ? 2 : 1;
  const OpFigures cost{0, t.bytes((1 + tables) * N * C), 0,
                       t.bytes(N * C) + static_cast<double>(2 * tables) * t.wide_bytes(N * C)};
  t.both("embedding", cost, [&](Tape* tape) {
    return learned ? embedding(tape, ids, tokens, at, &places) : embedding(tape, ids, tokens);
  });
  const Tensor x = t.activations(C);
  const double product = 2.0 * static_cast<double>(N) * static_cast<double>(C * V);
  t.time("head and loss", product, t.bytes(N * C + V * C),
         [&] { linear_cross_entropy(x, tokens, targets, 1); });
  t.time("head, loss and gradients", 3 * product,
         t.bytes(2 * N * C + V * C) + 2 * t.wide_bytes(V * C), [&] {
           Tape tape;
           linear_cross_entropy(tape.input(x), tokens, targets, 1);
         });
}

// Of as many elements as a GPT-2 block's matrices.
void time_optimizer(OpTimer& t, const ModelConfig& m) {
  const int64_t n = m.width * (4 * m.width + 2 * m.ffn_width);
  Tensor master = t.random({n}, t.wide()), first = t.random({n}, t.wide()),
         second = t.random({n}, t.wide());
  if (t.runs()) second.fill_zero();
  const Tensor gradient = t.random({n}, t.wide());
  Tensor value({n}, t.type(), t.pool(), "bench");
  const bool rounded = t.type() != t.wide();
  t.time("adamw of a block", 0, 7 * t.wide_bytes(n) + (rounded ? t.bytes(n) : 0),
         [&] { adamw(master, first, second, gradient, rounded ? &value : nullptr, {.lr = 1e-3}); });
  t.time("squared_norm of a block", 0, t.wide_bytes(n), [&] { squared_norm(gradient); });
}

bool has_gelu(const ModelConfig& m) {
  return m.type == ModelType::kGpt2 || m.type == ModelType::kAltup ||
         m.type == ModelType::kParascale ||
         (m.type == ModelType::kCmollm && m.cmollm.mode == StreamMode::kPipeline);
}

}  // namespace

std::vector<OpTiming> bench_ops(const Config& config, int64_t vocabulary, int64_t repeats,
                                const std::shared_ptr<Pool>& pool) {
  const ModelConfig& m = config.model;
  const int64_t B = config.train.micro_batch;
  const auto model = make_model(config, vocabulary);
  const Products products = model->products(B);
  OpTimer timer(B * m.context, compute_type(config.train.precision), repeats, pool);
  time_linear(timer, products);
  time_attention(timer, products);
  if (model->masks_documents()) time_document_attention(timer, m);
  if (m.type != ModelType::kKappaMoe) time_layer_norms(timer, m.width);
  if (has_gelu(m)) time_gelu(timer, m);
  time_family_ops(timer, config);
  const Tensor x = timer.activations(m.width), delta = timer.activations(m.width);
  timer.time("add", 0, timer.bytes(3 * x.count()), [&] { add(x, delta); });
  time_ends(timer, m, vocabulary);
  time_optimizer(timer, m);
  return timer.take();
}

OpBound bound_of(const OpTiming& op, const Machine& machine, DType type) {
  Machine at_best = machine;
  at_best.device.product_share.value = at_best.device.bandwidth_share.value = 1;
  constexpr int kRanks = 1;
  return {op.flops / at_best.product_rate(type, kRanks), op.bytes / at_best.memory_rate(kRanks)};
}

}  // namespace anabranch
