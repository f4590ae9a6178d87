#include "runtime/models/gpt2.h"

#include <cmath>
#include <utility>

#include "core/autograd/recompute.h"
#include "core/base/philox.h"
#include "core/ops/add.h"
#include "core/ops/attention.h"
#include "core/ops/dropout.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/linear.h"
#include "core/ops/linear_cross_entropy.h"

namespace anabranch {
namespace {

constexpr float kInitStd = 0.02F;

Gpt2Options checked(Gpt2Options o) {
  if (o.layers < 1 || o.width < 1 || o.heads < 1 || o.context < 1 || o.vocabulary < 1) {
    throw config_error("gpt2: layers ", o.layers, ", width ", o.width, ", heads ", o.heads,
                       ", context ", o.context, ", vocabulary ", o.vocabulary,
                       " must all be at least 1");
  }
  if (o.width % o.heads != 0) {
    throw config_error("model.width ", o.width, " is not a multiple of model.heads ", o.heads);
  }
  if (o.ffn_width == 0) o.ffn_width = 4 * o.width;
  return o;
}

// What a sublayer adds to the residual stream is scaled down by the number of such additions.
Init residual_init(const Gpt2Options& o) {
  return Init::normal(kInitStd / std::sqrt(2.0F * static_cast<float>(o.layers)));
}

// Positions 0..T-1 for each of B sequences, as an [B * T] tensor beside `ids`.
Tensor positions_from(const Tensor& ids, std::span<const int64_t> first = {}) {
  const int64_t B = ids.dim(0), T = ids.dim(1);
  Tensor positions = ids.like({B * T}, DType::kI32, "positions");
  for (int64_t b = 0; b < B; ++b) {
    const int64_t start = first.empty() ? 0 : first[static_cast<size_t>(b)];
    for (int64_t t = 0; t < T; ++t) {
      positions.data<int32_t>()[b * T + t] = static_cast<int32_t>(start + t);
    }
  }
  return positions;
}

Tensor flat(const Tensor& t) { return t.reshape({t.count()}); }

Var no_drop(const Var& x, int /*site*/) { return x; }

}  // namespace

Gpt2Block::Gpt2Block(const std::string& prefix, const Gpt2Options& o)
    : ln_1(prefix + "ln_1", o.width, o.norm_eps),
      c_attn(prefix + "attn.c_attn", o.width, 3 * o.width, true, Init::normal(kInitStd)),
      attn_proj(prefix + "attn.c_proj", o.width, o.width, true, residual_init(o)),
      ln_2(prefix + "ln_2", o.width, o.norm_eps),
      c_fc(prefix + "mlp.c_fc", o.width, o.ffn_width, true, Init::normal(kInitStd)),
      mlp_proj(prefix + "mlp.c_proj", o.ffn_width, o.width, true, residual_init(o)),
      gelu_form(o.gelu) {}

Var Gpt2Block::operator()(const Var& x, const BlockContext& context) {
  const Var a = attn_proj(context.attend(c_attn(ln_1(x))));
  const auto [h, u] = ln_2.add(x, context.drop(a, 0));
  const Var f = gelu_form == GeluForm::kTanh ? linear_gelu(u, c_fc.weight, *c_fc.bias)
                                             : gelu(c_fc(u), gelu_form);
  return h + context.drop(mlp_proj(f), 1);
}

Gpt2::Gpt2(const Gpt2Options& options)
    : options_(checked(options)),
      tokens_("wte.weight", {options_.vocabulary, options_.width}, Init::normal(kInitStd), true),
      positions_("wpe.weight", {options_.context, options_.width}, Init::normal(kInitStd), true),
      ln_f_("ln_f", options_.width, options_.norm_eps) {
  blocks_.reserve(static_cast<size_t>(options_.layers));  // addresses of parameters are stable
  for (int64_t l = 0; l < options_.layers; ++l) {
    blocks_.emplace_back("h." + std::to_string(l) + ".", options_);
  }
  set_compute(*this, options_.compute);
}

void Gpt2::visit(const std::function<void(Param&)>& f) {
  f(tokens_);
  f(positions_);
  for (Gpt2Block& block : blocks_) block.visit(f);
  ln_f_.visit(f);
}

Var Gpt2::hidden(Tape* tape, const MicroBatch& batch, const StepKey* key) {
  const int64_t B = batch.inputs.dim(0), T = batch.inputs.dim(1);
  AB_CHECK(T <= options_.context, "[gpt2] ", T, " tokens do not fit a context of ",
           options_.context);
  const float rate = key != nullptr ? options_.dropout : 0.0F;
  const uint64_t step_key =
      key != nullptr ? mix_keys(key->seed, static_cast<uint64_t>(key->step)) : 0;
  // By value: recomputation runs it again when this function has long returned.
  const auto drop = [rate, step_key, row = batch.first_sample * T](const Var& x, int64_t layer,
                                                                   int site) {
    const uint64_t place = mix_keys(step_key, static_cast<uint64_t>(2 * layer + site));
    return rate == 0 ? x : dropout(x, rate, {place, row});
  };

  Var x = embedding(tape, flat(batch.inputs), tokens_, positions_from(batch.inputs), &positions_);
  x = drop(x, options_.layers, 0);
  for (int64_t l = 0; l < options_.layers; ++l) {
    Gpt2Block& block = blocks_[static_cast<size_t>(l)];
    const BlockContext context{[B, heads = options_.heads, starts = batch.document_starts](
                                   const Var& qkv) { return attention(qkv, B, heads, starts); },
                               [drop, l](const Var& v, int site) { return drop(v, l, site); }};
    const auto run = [&block, context](const Var& v) { return block(v, context); };
    x = options_.recompute ? recompute(x, run) : run(x);
  }
  return ln_f_(x);
}

Var Gpt2::loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) {
  const Var x = hidden(&tape, batch, &key);
  return linear_cross_entropy(x, tokens_, flat(batch.targets), scale);
}

Tensor Gpt2::token_losses(const MicroBatch& batch) {
  const Var x = hidden(nullptr, batch, nullptr);
  Tensor losses = x.value().like({x.dim(0)}, accumulator_of(x.dtype()), "token_losses");
  anabranch::token_losses(losses, x.value(), tokens_, flat(batch.targets));
  return losses;
}

Tensor Gpt2::head(const Tensor& x) const {
  Tensor logits = x.like({x.dim(0), options_.vocabulary}, accumulator_of(x.dtype()), "logits");
  gemm(logits, x, tokens_.value, {.transpose_b = true});
  return logits;
}

Tensor Gpt2::logits(const Tensor& ids) {
  const MicroBatch batch{ids, {}, 0};
  return head(hidden(nullptr, batch, nullptr).value());
}

DecodeState Gpt2::decode_state(int64_t batch, int64_t tokens) const {
  DecodeState state;
  for (int64_t l = 0; l < options_.layers; ++l) {
    state.layers.push_back(make_kv_cache(tokens_.value, batch, tokens, options_.width));
  }
  return state;
}

Tensor Gpt2::decode(const Tensor& ids, std::span<const int64_t> new_tokens, DecodeState& state) {
  const int64_t B = ids.dim(0), S = ids.dim(1), C = options_.width;
  const Tensor positions = positions_from(ids, state.layers.front().lengths);
  // A padded row's position may lie past the table; the row is ignored, so any place will do.
  Tensor clamped = positions.clone("positions");
  for (int32_t& p : clamped.span<int32_t>()) {
    p = std::min(p, static_cast<int32_t>(options_.context - 1));
  }
  Var x = embedding(nullptr, flat(ids), tokens_, clamped, &positions_);
  for (size_t l = 0; l < blocks_.size(); ++l) {
    const BlockContext context{[&](const Var& qkv) -> Var {
                                 return cached_attention(qkv.value(), state.layers[l],
                                                         options_.heads, new_tokens);
                               },
                               no_drop};
    x = blocks_[l](x, context);
  }
  x = ln_f_(x);
  Tensor last = x.value().like({B, C}, x.dtype(), "last_hidden");
  for (int64_t b = 0; b < B; ++b) {
    const int64_t row = b * S + new_tokens[static_cast<size_t>(b)] - 1;
    last.view(b * C, {C}).copy_from(x.value().view(row * C, {C}));
  }
  return head(last);
}

ModelCost Gpt2::cost() const {
  const double L = static_cast<double>(options_.layers), C = static_cast<double>(options_.width);
  const auto T = static_cast<double>(options_.context), F = static_cast<double>(options_.ffn_width);
  const auto V = static_cast<double>(options_.vocabulary);
  const double block = 4 * C * C + 2 * C * F;    // weights of the matrix products
  const double vectors = 4 * C + 4 * C + F + C;  // norms and biases: 2 LN, qkv, proj, fc, proj
  ModelCost cost;
  cost.non_embedding_parameters = static_cast<int64_t>(L * (block + vectors) + 2 * C);
  cost.parameters = cost.non_embedding_parameters + static_cast<int64_t>((V + T) * C);
  const double attention = 2 * 2 * C * (T + 1) / 2;  // q k^T and p v, on average (T + 1) / 2 keys
  cost.flops_per_token = 3 * (2 * (L * block + V * C) + L * attention);
  return cost;
}

}  // namespace anabranch
