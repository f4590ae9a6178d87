#include "runtime/bench/ops_families.h"

#include "core/nn/layers.h"
#include "core/ops/adaptive_gate.h"
#include "core/ops/altup_correct.h"
#include "core/ops/balance_loss.h"
#include "core/ops/columns.h"
#include "core/ops/combine_rows.h"
#include "core/ops/expert_choice.h"
#include "core/ops/fold_streams.h"
#include "core/ops/gather_rows.h"
#include "core/ops/kappa_swiglu.h"
#include "core/ops/mix_streams.h"
#include "core/ops/prefix_mean.h"
#include "core/ops/prefix_rows.h"
#include "core/ops/qk_norm.h"
#include "core/ops/repeat_streams.h"
#include "core/ops/rope.h"
#include "core/ops/router_z_loss.h"
#include "core/ops/scalar_mix.h"
#include "core/ops/sigmoid_gate.h"
#include "core/ops/softmax.h"
#include "core/ops/stream_balance.h"
#include "core/ops/stream_gelu_mix.h"
#include "core/ops/stream_linear.h"
#include "core/ops/swiglu.h"
#include "core/ops/top_k_route.h"
#include "core/ops/value_mix.h"
#include "runtime/models/stream_ffn.h"

namespace anabranch {
namespace {

Param parameter(const OpTimer& t, Shape shape, Init init = Init::normal(kGpt2InitStd)) {
  Param w("bench", shape, init);
  w.wide = w.shape.rank() < 3;  // stacks of matrices alone are of the compute type
  t.make(w);
  return w;
}

// Rows that are only moved, or read and written once: forward, and the same backward.
OpFigures moves(const OpTimer& t, int64_t read, int64_t written) {
  return {0, t.bytes(read + written), 0, t.bytes(read + written)};
}

void time_stream_kernels(OpTimer& t, const ModelConfig& m) {
  const int64_t N = t.rows(), C = m.width, F = m.ffn_width, S = m.cmollm.streams;
  const Tensor s = t.activations(C), logits = t.logits(S);
  const Tensor gates = softmax(logits).value();
  Param w = parameter(t, {S, F, C}), b = parameter(t, {S, F});
  const double product = 2.0 * static_cast<double>(N * S) * static_cast<double>(F * C);
  const double moved = t.bytes(N * (C + F) + S * F * C);
  const OpFigures cost{product, moved, 2 * product,
                       moved + t.bytes(N * C) + 2 * t.wide_bytes(S * F * C)};
  const bool after = m.cmollm.mix == MixPoint::kPost;
  t.both(after ? "stream_gelu_mix" : "stream_linear", cost, [&](Tape* tape) {
    const Var u = OpTimer::on(tape, s), g = OpTimer::on(tape, gates);
    return after ? stream_gelu_mix(u, g, w, b) : stream_linear(u, g, w, b, m.cmollm.mix_order);
  });
}

void time_gates(OpTimer& t, const ModelConfig& m) {
  const int64_t N = t.rows(), C = m.width, S = m.cmollm.streams, B = N / m.context;
  const GateVariant variant = m.cmollm.variant;
  const Tensor logits = t.logits(S), f = t.activations(C), v = t.activations(C),
               scales = t.logits(3);
  const double small = t.wide_bytes(2 * N * S);
  t.both("softmax", {0, small, 0, small},
         [&](Tape* tape) { return softmax(OpTimer::on(tape, logits)); });
  const Tensor gates = softmax(logits).value();
  t.both("stream_balance", {0, small / 2, 0, small},
         [&](Tape* tape) { return stream_balance(OpTimer::on(tape, gates), B); });
  if (variant == GateVariant::kLinear) return;
  const OpFigures cost{0, t.bytes(3 * N * C), 0, t.bytes(5 * N * C)};
  if (variant == GateVariant::kAdaptive) {
    t.both("adaptive_gate", cost, [&](Tape* tape) {
      return adaptive_gate(OpTimer::on(tape, f), OpTimer::on(tape, v), OpTimer::on(tape, scales));
    });
  } else {
    t.both("sigmoid_gate", cost,
           [&](Tape* tape) { return sigmoid_gate(OpTimer::on(tape, f), OpTimer::on(tape, v)); });
  }
  if (variant != GateVariant::kAdaptive && variant != GateVariant::kContextAware) return;
  t.both("prefix_mean", moves(t, N * C, N * C),
         [&](Tape* tape) { return prefix_mean(OpTimer::on(tape, f), B, mean_form(m.cmollm)); });
}

// What folds P streams into rows and weighs them.
void time_merging(OpTimer& t, int64_t streams, int64_t C, double smoothing) {
  const int64_t N = t.rows(), all = streams * N * C;
  const Tensor apart = t.random({streams * N, C}, t.type()), folded = t.activations(streams * C);
  const Tensor weights = softmax(t.logits(streams)).value();
  t.both("fold_streams", moves(t, all, all),
         [&](Tape* tape) { return fold_streams(OpTimer::on(tape, apart), streams); });
  t.both("mix_streams", {0, t.bytes(all + N * C), 0, t.bytes(2 * all + N * C)}, [&](Tape* tape) {
    return mix_streams(OpTimer::on(tape, folded), OpTimer::on(tape, weights), smoothing);
  });
}

void time_cmollm(OpTimer& t, const ModelConfig& m) {
  time_gates(t, m);
  if (m.cmollm.mode == StreamMode::kFfn) return time_stream_kernels(t, m);
  time_merging(t, m.cmollm.streams, m.width, m.cmollm.beta);
}

void time_parascale(OpTimer& t, const ModelConfig& m) {
  const int64_t N = t.rows(), C = m.width, P = m.parascale.streams, n = m.parascale.prefix;
  if (P == 1) return;
  const int64_t sequences = P * N / m.context, own = P * N * C, all = own + sequences * n * C;
  const Tensor x = t.activations(C), qkv = t.random({P * N, 3 * C}, t.type());
  t.both("repeat_streams", moves(t, N * C, own),
         [&](Tape* tape) { return repeat_streams(OpTimer::on(tape, x), P); });
  Param keys = parameter(t, {P, n, C}), values = parameter(t, {P, n, C});
  t.both("with_prefix", moves(t, 3 * own, 3 * all),
         [&](Tape* tape) { return with_prefix(OpTimer::on(tape, qkv), keys, values, sequences); });
  time_merging(t, P, C, m.parascale.smoothing);
}

void time_altup(OpTimer& t, const ModelConfig& m) {
  const int64_t C = m.width, K = m.altup.blocks, all = K * t.rows() * C;
  const Tensor x = t.activations(K * C), computed = t.activations(C);
  Param predict = parameter(t, {K, K}, Init::identity()),
        correct = parameter(t, {K}, Init::constant(1));
  t.both("split_columns, scalar_mix", {0, t.bytes(4 * all), 0, t.bytes(4 * all)}, [&](Tape* tape) {
    return join_columns(scalar_mix(split_columns(OpTimer::on(tape, x), K), predict));
  });
  t.both("altup_correct", {0, t.bytes(4 * all), 0, t.bytes(4 * all)}, [&](Tape* tape) {
    const std::vector<Var> blocks = split_columns(OpTimer::on(tape, x), K);
    return join_columns(altup_correct(blocks, OpTimer::on(tape, computed), 0, correct));
  });
}

Tensor positions(const OpTimer& t, int64_t context) {
  Tensor all({t.rows()}, DType::kI32);
  for (int64_t n = 0; n < t.rows(); ++n) {
    all.data<int32_t>()[n] = static_cast<int32_t>(n % context);
  }
  return all.copy_in(t.pool());
}

void time_rotation(OpTimer& t, const ModelConfig& m, bool reversed) {
  const int64_t N = t.rows(), C = m.width;
  const Tensor qkv = t.activations(3 * C), places = positions(t, m.context);
  t.both("rope", moves(t, 3 * N * C, 3 * N * C), [&](Tape* tape) {
    return rope(OpTimer::on(tape, qkv), places, {m.heads, m.heads, C / m.heads, 10000, reversed});
  });
}

void time_swiglu(OpTimer& t, const std::string& name, int64_t rows, int64_t F) {
  const Tensor x = t.random({rows, 2 * F}, t.type());
  t.both(name, {0, t.bytes(3 * rows * F), 0, t.bytes(5 * rows * F)},
         [&](Tape* tape) { return swiglu(OpTimer::on(tape, x)); });
}

// To the rows of experts and back.
void time_rows(OpTimer& t, const SlotPlan& plan, const Tensor& gates, int64_t C) {
  const int64_t N = t.rows(), S = plan.groups.most_rows();
  const Tensor x = t.activations(C), z = t.random({S, C}, t.type());
  t.both("gather_rows", moves(t, S * C, S * C),
         [&](Tape* tape) { return gather_rows(OpTimer::on(tape, x), plan.source); });
  t.both("combine_rows", {0, t.bytes((S + N) * C), 0, t.bytes((2 * S + N) * C)}, [&](Tape* tape) {
    return combine_rows(OpTimer::on(tape, z), OpTimer::on(tape, gates), plan);
  });
}

void time_token_choice(OpTimer& t, const Tensor& logits, const TopKRule& rule) {
  const double read = t.wide_bytes(logits.count());
  const TopKRoute route = top_k_route(logits, rule);
  t.both("top_k_route", {0, read, 0, read},
         [&](Tape* tape) { return top_k_route(OpTimer::on(tape, logits), rule).gates; });
  t.both("balance_loss", {0, read, 0, 2 * read}, [&](Tape* tape) {
    return balance_loss(OpTimer::on(tape, logits), route.demand, {rule.pool_rows, 1});
  });
}

void time_kappa_norms(OpTimer& t, const ModelConfig& m) {
  const int64_t N = t.rows(), C = m.width;
  const Tensor x = t.activations(C), delta = t.activations(C), qkv = t.activations(3 * C),
               logits = t.logits(m.heads);
  t.both("rms_norm", {0, t.bytes(2 * N * C), 0, t.bytes(3 * N * C)},
         [&](Tape* tape) { return rms_norm(OpTimer::on(tape, x)); });
  t.both("add_rms_norm", {0, t.bytes(4 * N * C), 0, t.bytes(3 * N * C)}, [&](Tape* tape) {
    return add_rms_norm(OpTimer::on(tape, x), OpTimer::on(tape, delta)).norm;
  });
  time_rotation(t, m, true);
  t.both("qk_norm", moves(t, 3 * N * C, 3 * N * C),
         [&](Tape* tape) { return qk_norm(OpTimer::on(tape, qkv), m.heads); });
  t.both("value_mix", {0, t.bytes(7 * N * C), 0, t.bytes(8 * N * C)}, [&](Tape* tape) {
    return value_mix(OpTimer::on(tape, qkv), OpTimer::on(tape, x), OpTimer::on(tape, logits));
  });
}

void time_kappa(OpTimer& t, const ModelConfig& m) {
  time_kappa_norms(t, m);
  const int64_t E = m.kappa.experts, F = m.ffn_width, S = t.rows() * m.kappa.top_k;
  const Tensor logits = t.logits(E);
  TopKRule rule;
  rule.k = m.kappa.top_k;
  const TopKRoute route = top_k_route(logits, rule);
  time_token_choice(t, logits, rule);
  t.both("router_z_loss", {0, t.wide_bytes(logits.count()), 0, 2 * t.wide_bytes(logits.count())},
         [&](Tape* tape) { return router_z_loss(OpTimer::on(tape, logits), m.kappa.z_form); });
  time_rows(t, route.plan, route.gates.value(), m.width);
  time_swiglu(t, "swiglu of the experts", S, F);
  const Tensor x = t.random({S, 2 * F}, t.type());
  const Tensor score = route.selected.value();
  Param alpha = parameter(t, {E, F}), b = parameter(t, {E, F});
  const Kappa kappa{m.kappa.kappa_range, m.kappa.kappa_scale_alpha, m.kappa.kappa_scale_b,
                    m.kappa.kappa_router_grad};
  t.both("kappa_swiglu", {0, t.bytes(3 * S * F), 0, t.bytes(5 * S * F)}, [&](Tape* tape) {
    return kappa_swiglu(OpTimer::on(tape, x), OpTimer::on(tape, score), &alpha, &b,
                        route.plan.groups, kappa);
  });
}

void time_moep(OpTimer& t, const ModelConfig& m) {
  const int64_t N = t.rows(), E = std::ssize(m.moep.windows);
  const Tensor logits = t.logits(E);
  const double moved = t.wide_bytes(2 * N * E);
  t.both("softmax", {0, moved, 0, moved},
         [&](Tape* tape) { return softmax(OpTimer::on(tape, logits)); });
  const Tensor scores = softmax(logits).value();
  const ExpertChoiceRule rule{m.moep.capacity, 0, SlotOrder::kTime};
  const SlotPlan plan = expert_choice(scores, rule).plan;
  t.time("expert_choice", 0, moved / 2, [&] { expert_choice(scores, rule); });
  time_rows(t, plan, scores, m.moep.expert_width);
  time_rotation(t, m, false);
  time_swiglu(t, "swiglu", N, m.ffn_width);
  if (m.moep.select != Selection::kTokenChoice) return;
  TopKRule by_token;
  by_token.gate = GateForm::kProbability;
  time_token_choice(t, logits, by_token);
}

}  // namespace

void time_family_ops(OpTimer& timer, const Config& config) {
  const ModelConfig& m = config.model;
  switch (m.type) {
    case ModelType::kGpt2:
      return;
    case ModelType::kCmollm:
      return time_cmollm(timer, m);
    case ModelType::kParascale:
      return time_parascale(timer, m);
    case ModelType::kAltup:
      return time_altup(timer, m);
    case ModelType::kKappaMoe:
      return time_kappa(timer, m);
    case ModelType::kMoepMsit:
      return time_moep(timer, m);
  }
}

}  // namespace anabranch
