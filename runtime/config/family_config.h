// The keys of the model section that only some families have. A key that the chosen family does not
// have is refused, not ignored.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/family_values.h"
#include "runtime/config/values.h"

namespace anabranch {

// Families with a GPT-2 backbone.
struct Gpt2Keys {
  double dropout = 0;
  GeluForm gelu = GeluForm::kTanh;
  double norm_eps = 1e-5;

  void visit(auto&& f) {
    f("dropout", dropout, 0.0, 0.99, "share of activations dropped in training");
    f("gelu", gelu, "exact GELU (erf) or GPT-2's approximation (tanh)");
    f("norm_eps", norm_eps, 1e-12, 1e-1, "added to the variance in layer norms");
  }

  bool operator==(const Gpt2Keys&) const = default;
};

struct CmollmKeys {
  StreamMode mode = StreamMode::kFfn;
  int64_t streams = 4;
  GateVariant variant = GateVariant::kLinear;
  GateSite gate_site = GateSite::kAuto;
  int64_t gate_heads = 4;
  HeadInput head_input = HeadInput::kFull;
  GateContext ctx = GateContext::kPrefixMean;
  double ctx_decay = 0.99;
  double bal_alpha = 0.01;
  BalanceScope bal_scope = BalanceScope::kSequence;
  MixPoint mix = MixPoint::kPre;
  MixOrder mix_order = MixOrder::kScaled;
  Aggregator agg = Aggregator::kMlp;
  double beta = 0.01;
  int64_t span = 0;

  void visit(auto&& f) {
    f("mode", mode, "ffn: kernels mixed in every feed-forward part; pipeline: whole streams");
    f("streams", streams, int64_t{1}, int64_t{1024}, "N, streams that are mixed");
    f("variant", variant, "what the gates read: the hidden state, or a gated map of it");
    f("gate_site", gate_site,
      "where that map goes: to the router alone, or to the streams too (feature); auto: router in "
      "mode ffn, feature in mode pipeline");
    f("gate_heads", gate_heads, int64_t{1}, int64_t{1024}, "H of variant multi_head");
    f("head_input", head_input, "whether each of them reads the full width or its slice");
    f("ctx", ctx,
      "context of context_aware and adaptive; global sees the future, to show the leak");
    f("ctx_decay", ctx_decay, 0.0, 0.999999, "decay of ctx ema");
    f("bal_alpha", bal_alpha, 0.0, 100.0, "weight of the balance loss");
    f("bal_scope", bal_scope, "over what the gates are averaged before they are balanced");
    f("mix", mix, "mix kernels before the nonlinearity, or expert outputs after it (mode ffn)");
    f("mix_order", mix_order, "scale inputs and add products, or scale products: the same sum");
    f("agg", agg, "what weighs the streams at their end (mode pipeline)");
    f("beta", beta, 0.0, 1.0, "share of the uniform mixture in those weights");
    f("span", span, int64_t{0}, int64_t{4096}, "layers from expansion to merging; 0: all of them");
  }

  bool operator==(const CmollmKeys&) const = default;
};

struct ParascaleKeys {
  int64_t streams = 4, prefix = 48;
  double smoothing = 0.01;

  void visit(auto&& f) {
    f("streams", streams, int64_t{1}, int64_t{1024}, "P, copies of the model's input");
    f("prefix", prefix, int64_t{1}, int64_t{65536}, "learned keys and values before each sequence");
    f("smoothing", smoothing, 0.0, 1.0, "share of the uniform mixture in the weights of streams");
  }

  bool operator==(const ParascaleKeys&) const = default;
};

struct AltupKeys {
  int64_t blocks = 2;
  bool recycled = true;
  BlockChoice choice = BlockChoice::kAlternating;

  void visit(auto&& f) {
    f("blocks", blocks, int64_t{1}, int64_t{64}, "K, blocks of the widened residual stream");
    f("recycled", recycled, "copy one embedding K times, not a table of K times the width");
    f("choice", choice, "which block a layer computes on");
  }

  bool operator==(const AltupKeys&) const = default;
};

struct MoepKeys {
  Compat compat = Compat::kNone;
  std::vector<int64_t> windows{64, 16, 8, 4};
  int64_t expert_width = 384, expert_heads = 6;
  double capacity = 2;
  Selection select = Selection::kEcBatch;
  int64_t pool_sequences = 1;
  SlotOrder order = SlotOrder::kTime;
  SegmentScope segments = SegmentScope::kSequence;
  SlotPosition rope_position = SlotPosition::kOriginal, window = SlotPosition::kOriginal;
  bool windowed = true, global_block = true;
  FfnRound ffn_round = FfnRound::kNearest;
  double threshold_decay = 0.99, aux_alpha = 0.01, predictor_weight = 1;
  double dropout = 0;
  double causal_ratio = 1, mask_first = 0.2, mask_last = 0.1;
  MaskTarget mlm_target = MaskTarget::kNext;

  void visit(auto&& f) {
    f("compat", compat, "reference: as the released code, which looks ahead; keys given win");
    f("windows", windows, int64_t{1}, int64_t{1} << 24, "attention window of each expert");
    f("expert_width", expert_width, int64_t{1}, int64_t{1} << 20, "width inside an expert");
    f("expert_heads", expert_heads, int64_t{1}, int64_t{65536}, "attention heads of an expert");
    f("capacity", capacity, 0.0, 1024.0, "c, experts of a token on average");
    f("select", select, "how tokens and experts find each other");
    f("pool_sequences", pool_sequences, int64_t{1}, int64_t{65536},
      "sequences over which experts choose and balance is measured, whatever the ranks");
    f("order", order, "rows of an expert in time, or by affinity (reference: leaks)");
    f("segments", segments, "attention within a sequence, or across the pool (reference)");
    f("rope_position", rope_position, "position of a row: in its sequence, or among those chosen");
    f("window", window, "window in distance of the text, or in chosen rows");
    f("windowed", windowed, "false: experts attend to all chosen rows before");
    f("global_block", global_block, "false: without the dense attention and feed-forward part");
    f("ffn_round", ffn_round, "8/3 of the width as a multiple of 8: the nearest, or the next");
    f("threshold_decay", threshold_decay, 0.0, 1.0, "decay of the moving k-th score");
    f("aux_alpha", aux_alpha, 0.0, 100.0, "weight of the balance loss of token_choice");
    f("predictor_weight", predictor_weight, 0.0, 100.0, "weight of the predictor's loss");
    f("dropout", dropout, 0.0, 0.99, "share of the embedding dropped in training");
    f("causal_ratio", causal_ratio, 0.0, 1.0,
      "share of causal batches; others are masked: the last token is the mask");
    f("mask_first", mask_first, 0.0, 1.0, "share of masked tokens at the start of the run");
    f("mask_last", mask_last, 0.0, 1.0, "and at its end");
    f("mlm_target", mlm_target, "what a masked position predicts: its own token or the next");
  }

  bool operator==(const MoepKeys&) const = default;
};

struct KappaKeys {
  int64_t depth = 0, experts = 8, top_k = 2, moe_first = 2, moe_layers = 0;
  bool sandwich = false, kappa = true, kappa_alpha = true, kappa_b = true;
  double kappa_range = 3, kappa_scale_alpha = 1, kappa_scale_b = 1, kappa_router_grad = 1;
  double l2_alpha = 2e-2, l2_b = 1e-2;
  double balance = 1e-3, balance_first = 1;
  int64_t balance_steps = 0, pool_sequences = 1;
  double z_loss = 1e-5, z_input_grad = 1;
  ZLossForm z_form = ZLossForm::kPlain;
  double capacity_train = 0, capacity_eval = 0;
  double softcap = 15, x0_init = 0;

  void visit(auto&& f) {
    f("depth", depth, int64_t{0}, int64_t{4096},
      "sets layers, width (96 a layer, rounded up to heads of 128), heads where they are 0");
    f("experts", experts, int64_t{1}, int64_t{65536}, "E, experts of a mixture layer");
    f("top_k", top_k, int64_t{1}, int64_t{65536}, "experts of a token");
    f("moe_first", moe_first, int64_t{0}, int64_t{4096}, "the first mixture layer, from 0");
    f("moe_layers", moe_layers, int64_t{0}, int64_t{4096}, "mixture layers; 0: all from the first");
    f("sandwich", sandwich, "mixtures in the two middle layers alone");
    visit_kappa(f);
    visit_losses(f);
    f("capacity_train", capacity_train, 0.0, 1024.0, "capacity factor; 0: dropless");
    f("capacity_eval", capacity_eval, 0.0, 1024.0,
      "the same in evaluation as trained, beside the headline loss, which is dropless");
    f("softcap", softcap, 0.0, 1e6, "logits are softcap * tanh(logits / softcap); 0: as they are");
    f("x0_init", x0_init, -10.0, 10.0, "first weight of the input embedding in each layer");
  }

  bool operator==(const KappaKeys&) const = default;

 private:
  void visit_kappa(auto&& f) {
    f("kappa", kappa, "false: plain SwiGLU experts");
    f("kappa_alpha", kappa_alpha, "false: the ablation without the router's confidence");
    f("kappa_b", kappa_b, "false: the ablation without the bias");
    f("kappa_range", kappa_range, 1.0, 1000.0, "U: kappa lies in (1/U, U)");
    f("kappa_scale_alpha", kappa_scale_alpha, 0.0, 100.0, "factor of alpha * s inside tanh");
    f("kappa_scale_b", kappa_scale_b, 0.0, 100.0, "factor of b inside tanh");
    f("kappa_router_grad", kappa_router_grad, 0.0, 1.0, "share of kappa's gradient to the router");
    f("l2_alpha", l2_alpha, 0.0, 100.0, "weight of the mean square of alpha");
    f("l2_b", l2_b, 0.0, 100.0, "weight of the mean square of b");
  }

  void visit_losses(auto&& f) {
    f("balance", balance, 0.0, 100.0, "weight of the balance loss");
    f("balance_first", balance_first, 0.0, 100.0, "factor of it at the first step");
    f("balance_steps", balance_steps, int64_t{0}, kMaxCount, "steps until that factor is 1");
    f("pool_sequences", pool_sequences, int64_t{1}, int64_t{65536},
      "sequences over which balance is measured and capacity counts, whatever the ranks");
    f("z_loss", z_loss, 0.0, 100.0, "weight of the router z-loss");
    f("z_form", z_form, "plain: mean of lse^2; demeaned: of (lse - mean)^2 + mean^2");
    f("z_input_grad", z_input_grad, 0.0, 1.0, "share of its gradient that reaches the activations");
  }
};

}  // namespace anabranch
