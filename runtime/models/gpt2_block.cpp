#include "runtime/models/gpt2_block.h"

#include <cmath>

#include "core/base/philox.h"
#include "core/ops/add.h"
#include "core/ops/attention.h"
#include "core/ops/dropout.h"
#include "core/ops/embedding.h"
#include "runtime/models/head.h"

namespace anabranch {

Gpt2Options checked(Gpt2Options o) {
  check_sizes({o.layers, o.width, o.heads, o.context, o.vocabulary});
  if (o.width % o.heads != 0) {
    throw config_error("model.width ", o.width, " is not a multiple of model.heads ", o.heads);
  }
  if (o.ffn_width == 0) o.ffn_width = 4 * o.width;
  return o;
}

Init residual_init(const Gpt2Options& o) {
  return Init::normal(kGpt2InitStd / std::sqrt(2.0F * static_cast<float>(o.layers)));
}

PlacedDropout::PlacedDropout(float drop_rate, const MicroBatch& batch, const StepKey* step) {
  if (step == nullptr) return;
  rate = drop_rate;
  key = mix_keys(step->seed, static_cast<uint64_t>(step->step));
  first_row = batch.first_sample * batch.inputs.dim(1);
}

Var PlacedDropout::operator()(const Var& x, int64_t layer, int site) const {
  if (rate == 0) return x;
  return dropout(x, rate, {mix_keys(key, static_cast<uint64_t>(2 * layer + site)), first_row});
}

BlockContext whole_context(const MicroBatch& batch, int64_t heads, const PlacedDropout& drop,
                           int64_t layer) {
  return {[B = batch.inputs.dim(0), heads, starts = batch.document_starts](const Var& qkv) {
            return attention(qkv, B, heads, starts.beside(qkv.value()));
          },
          [drop, layer](const Var& x, int site) { return drop(x, layer, site); }};
}

BlockContext cached_context(KvCache& cache, int64_t heads, std::span<const int64_t> new_tokens) {
  return {[&cache, heads, new_tokens](const Var& qkv) -> Var {
            return cached_attention(qkv.value(), cache, heads, new_tokens);
          },
          [](const Var& x, int /*site*/) { return x; }};
}

Gpt2Attention::Gpt2Attention(const std::string& prefix, const Gpt2Options& o)
    : c_attn(prefix + "c_attn", o.width, 3 * o.width, true, Init::normal(kGpt2InitStd)),
      c_proj(prefix + "c_proj", o.width, o.width, true, residual_init(o)) {
  c_attn.weight.matrices = 3;
}

Gpt2Mlp::Gpt2Mlp(const std::string& prefix, const Gpt2Options& o)
    : c_fc(prefix + "c_fc", o.width, o.ffn_width, true, Init::normal(kGpt2InitStd)),
      c_proj(prefix + "c_proj", o.ffn_width, o.width, true, residual_init(o)),
      form(o.gelu) {}

Var Gpt2Mlp::operator()(const Var& u) {
  return c_proj(form == GeluForm::kTanh ? linear_gelu(u, c_fc.weight, *c_fc.bias)
                                        : gelu(c_fc(u), form));
}

Gpt2Block::Gpt2Block(const std::string& prefix, const Gpt2Options& o)
    : ln_1(prefix + "ln_1", o.width, o.norm_eps),
      attn(prefix + "attn.", o),
      ln_2(prefix + "ln_2", o.width, o.norm_eps),
      mlp(prefix + "mlp.", o) {}

Var Gpt2Block::operator()(const Var& x, const BlockContext& context) {
  const auto [h, u] = ln_2.add(x, context.drop(attn(ln_1(x), context), 0));
  return h + context.drop(mlp(u), 1);
}

Gpt2Tables::Gpt2Tables(const Gpt2Options& o)
    : tokens("wte.weight", {o.vocabulary, o.width}, Init::normal(kGpt2InitStd), true),
      positions("wpe.weight", {o.context, o.width}, Init::normal(kGpt2InitStd), true) {
  tokens.role = positions.role = Role::kEmbedding;
}

Var Gpt2Tables::operator()(Tape* tape, const Tensor& ids, std::span<const int64_t> first) {
  AB_CHECK(!first.empty() || ids.dim(1) <= positions.shape[0], ids.dim(1),
           " tokens do not fit a context of ", positions.shape[0]);
  return embedding(tape, flat(ids), tokens, positions_from(ids, first, positions.shape[0] - 1),
                   &positions);
}

Products gpt2_block_products(const Gpt2Options& o, int64_t sequences) {
  const int64_t rows = sequences * o.context, C = o.width, F = o.ffn_width, L = o.layers;
  Products products;
  products.add({"qkv", rows, C, 3 * C, 1, L});
  products.add({"projection", rows, C, C, 1, L});
  products.add({"feed-forward in", rows, C, F, 1, L});
  products.add({"feed-forward out", rows, F, C, 1, L});
  products.add_attention({"attention", sequences, o.heads, o.context, C / o.heads, 0, 0, L});
  return products;
}

Product head_product(int64_t rows, int64_t width, int64_t vocabulary) {
  return {"head", rows, width, vocabulary, 1, 1, ProductRole::kHead};
}

ModelCost gpt2_cost(const Gpt2Options& options) {
  const double L = static_cast<double>(options.layers), C = static_cast<double>(options.width);
  const auto T = static_cast<double>(options.context), F = static_cast<double>(options.ffn_width);
  const auto V = static_cast<double>(options.vocabulary);
  const double block = 4 * C * C + 2 * C * F;    // weights of the matrix products
  const double vectors = 4 * C + 4 * C + F + C;  // norms and biases: 2 LN, qkv, proj, fc, proj
  ModelCost cost;
  cost.non_embedding_parameters = static_cast<int64_t>(L * (block + vectors) + 2 * C);
  cost.parameters = cost.non_embedding_parameters + static_cast<int64_t>((V + T) * C);
  cost.linear_macs = L * block + V * C;
  cost.attention_macs = L * 2 * C * (T + 1) / 2;  // on average (T + 1) / 2 keys
  return cost;
}

}  // namespace anabranch
