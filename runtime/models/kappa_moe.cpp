#include "runtime/models/kappa_moe.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/recompute.h"
#include "core/base/range.h"
#include "core/ops/attention.h"
#include "core/ops/scalar_mix.h"

namespace anabranch {
namespace {

KappaOptions fitting(KappaOptions o, const KappaKeys& keys) {
  check_sizes({o.layers, o.width, o.heads, o.context, o.vocabulary});
  if (o.width % (2 * o.heads) != 0) {
    throw config_error("model.width ", o.width, " is not a multiple of twice model.heads ", o.heads,
                       ": rotary positions need heads of even width");
  }
  if (keys.top_k < 1 || keys.top_k > keys.experts) {
    throw config_error("model.top_k ", keys.top_k, " must be 1 to model.experts ", keys.experts);
  }
  AB_CHECK(std::ssize(o.mixture) == o.layers, std::ssize(o.mixture), " kinds of ", o.layers,
           " layers");
  if (o.ffn_width == 0) o.ffn_width = 4 * o.width;
  return o;
}

// Slots of an expert: an even number, at least 4.
int64_t capacity_of(const KappaKeys& keys, double factor, int64_t tokens) {
  const double share = static_cast<double>(keys.top_k) * factor * static_cast<double>(tokens) /
                       static_cast<double>(keys.experts);
  const auto slots = static_cast<int64_t>(std::floor(share));
  return std::max<int64_t>(4, slots + slots % 2);
}

Param table(const std::string& name, const KappaOptions& o, float std_dev, Role role) {
  Param w(name, {o.vocabulary, o.width}, Init::normal(std_dev));
  w.role = role;
  return w;
}

}  // namespace

KappaMoe::KappaMoe(const KappaOptions& options, const KappaKeys& keys, const Regions& regions)
    : options_(fitting(options, keys)),
      keys_(keys),
      regions_(regions),
      wte_(table("wte.weight", options_, 1, Role::kEmbedding)),
      lm_head_(table("lm_head.weight", options_, 0.001F, Role::kHead)),
      head_(lm_head_, keys.softcap),
      figures_(options_.layers, keys.experts),
      gate_figures_(figures_.places(), options_.layers, keys.experts) {
  blocks_.reserve(static_cast<size_t>(options_.layers));
  for (int64_t l = 0; l < options_.layers; ++l) blocks_.emplace_back(l, options_, keys_, regions_);
  set_compute(*this, options_.compute);
}

void KappaMoe::visit(const std::function<void(Param&)>& f) {
  f(wte_);
  for (KappaBlock& block : blocks_) block.visit(f);
  f(lm_head_);
}

double KappaMoe::balance_at(int64_t step) const {
  if (step >= keys_.balance_steps) return keys_.balance;
  const double done = static_cast<double>(step) / static_cast<double>(keys_.balance_steps);
  return keys_.balance * (keys_.balance_first + (1 - keys_.balance_first) * done);
}

KappaContext KappaMoe::whole(const MicroBatch& batch, double factor) const {
  const int64_t B = batch.inputs.dim(0), T = batch.inputs.dim(1);
  KappaContext context{flat(batch.inputs), positions_from(batch.inputs).beside(wte_.value)};
  context.rule.k = keys_.top_k;
  if (factor == 0) return context;
  // In evaluation a batch may have fewer sequences than a pool.
  const int64_t pool = std::min(keys_.pool_sequences, B * regions_.pool_size());
  context.rule.pool_rows = pool_rows(pool, B, T);
  context.rule.capacity = capacity_of(keys_, factor, pool * T);
  return context;
}

int64_t KappaMoe::pool_rows(int64_t sequences, int64_t B, int64_t T) const {
  const int64_t ranks = regions_.pool_size(), all = B * ranks;
  if (all % sequences == 0 && (ranks == 1 || all == sequences)) return sequences / ranks * T;
  throw config_error("batches of ", B, " sequences on ", ranks, " ranks are not whole pools of ",
                     "model.pool_sequences ", sequences,
                     ", over which balance is measured and capacity counts");
}

Var KappaMoe::hidden(Tape* tape, KappaContext context,
                     const std::function<std::function<Var(const Var&)>(size_t)>& attention) {
  const Var x0 = rms_norm(embedding(tape, context.ids, wte_), kKappaNormEps);
  Var x = x0;
  for (size_t l = 0; l < blocks_.size(); ++l) {
    KappaBlock& block = blocks_[l];
    context.attend = attention(l);
    context.layer = static_cast<int64_t>(l);
    const Range range("layer", context.layer);
    const auto run = [&block, context](const Var& v) { return block(v, context); };
    x = scalar_mix(x, block.resid_lambda, x0, block.x0_lambda);
    x = options_.recompute ? recompute(x, run) : run(x);
  }
  return rms_norm(x, kKappaNormEps);
}

Var KappaMoe::hidden(Tape* tape, const MicroBatch& batch, const KappaContext& context) {
  return hidden(tape, context, [&](size_t /*layer*/) {
    return [B = batch.inputs.dim(0), heads = options_.heads, starts = batch.document_starts](
               const Var& qkv) { return attention(qkv, B, heads, starts.beside(qkv.value())); };
  });
}

Var KappaMoe::loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) {
  const int64_t B = batch.inputs.dim(0), T = batch.inputs.dim(1);
  KappaContext context = whole(batch, keys_.capacity_train);
  context.rule.pool_rows = pool_rows(keys_.pool_sequences, B, T);
  context.losses = {static_cast<double>(B * T) * scale, key.measures};
  context.balance = balance_at(key.step);
  context.figures = &figures_;
  context.gate_figures = &gate_figures_;
  return head_.loss(hidden(&tape, batch, context), batch.targets, scale);
}

std::vector<Reading> KappaMoe::readings(const Measures& measures) const {
  std::vector<Reading> all{{Metric::kAuxiliaryLoss, 0, 0, measures.at(0)}};
  for (size_t l = 0; l < blocks_.size(); ++l) {
    figures_.read(all, measures, static_cast<int64_t>(l));
    const auto& mixture = blocks_[l].mixture;
    const int layer = static_cast<int>(l);
    if (mixture)
      gate_figures_.read(all, measures, static_cast<int64_t>(l), mixture->gate_weights());
    if (mixture && mixture->alpha) {
      all.push_back(
          {Metric::kPositiveAlpha, layer, 0, positive_mean(mixture->alpha->value, regions_.model)});
    }
    if (mixture && mixture->b) {
      all.push_back(
          {Metric::kPositiveB, layer, 0, positive_mean(mixture->b->value, regions_.model)});
    }
  }
  return all;
}

Tensor KappaMoe::token_losses(const MicroBatch& batch, Routing routing) {
  // Later tokens push out second choices of earlier ones: with a capacity it is no causal loss.
  const double factor = routing == Routing::kCausal ? 0 : keys_.capacity_eval;
  const Var x = hidden(nullptr, batch, whole(batch, factor));
  return head_.losses(x.value(), batch.targets);
}

Tensor KappaMoe::logits(const Tensor& ids) {
  const MicroBatch batch{ids, {}, 0};
  return head_.logits(hidden(nullptr, batch, whole(batch, keys_.capacity_eval)).value());
}

DecodeState KappaMoe::decode_state(int64_t batch, int64_t tokens) const {
  return empty_caches(wte_.value, options_.layers, batch, tokens, options_.width);
}

Tensor KappaMoe::decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                               DecodeState& state) {
  KappaContext context{flat(ids),
                       positions_from(ids, state.layers.front().lengths).beside(wte_.value)};
  context.rule.k = keys_.top_k;
  const auto cached = [&](size_t l) {
    return [&cache = state.layers[l], heads = options_.heads, new_tokens](const Var& qkv) -> Var {
      return cached_attention(qkv.value(), cache, heads, new_tokens);
    };
  };
  const Var x = hidden(nullptr, std::move(context), cached);
  return x.value();
}

ModelCost KappaMoe::cost() const {
  const int64_t C = options_.width, F = options_.ffn_width, E = keys_.experts,
                V = options_.vocabulary;
  const auto T = static_cast<double>(options_.context);
  ModelCost cost;
  cost.parameters = 2 * V * C;
  int64_t embeddings = V * C, linear = V * C, gates = 0;
  for (const KappaBlock& block : blocks_) {
    cost.parameters += 2 + 4 * C * C;
    linear += 4 * C * C;
    if (block.attn.value_gate) {
      const int64_t gate = block.attn.value_gate->shape.count();
      cost.parameters += V * C + gate;
      embeddings += V * C;
      gates += gate;
    }
    if (block.mixture) {
      const int64_t slopes = (block.mixture->alpha ? 1 : 0) + (block.mixture->b ? 1 : 0);
      cost.parameters += E * C + E * (3 * C * F + slopes * F);
      linear += keys_.top_k * 3 * C * F;
      gates += E * C;
    } else {
      cost.parameters += 3 * C * F;
      linear += 3 * C * F;
    }
  }
  // The head works as much as it weighs: only tables that are looked up are embeddings.
  cost.non_embedding_parameters = cost.parameters - embeddings;
  cost.linear_macs = static_cast<double>(linear);
  cost.front_end_macs = static_cast<double>(gates);
  cost.attention_macs = static_cast<double>(options_.layers * 2 * C) * (T + 1) / 2;
  return cost;
}

Products KappaMoe::products(int64_t sequences) const {
  const int64_t rows = sequences * options_.context;
  int64_t dense = 0, mixtures = 0, gates = 0;
  const KappaBlock *of_dense = nullptr, *of_mixture = nullptr, *of_gate = nullptr;
  for (const KappaBlock& block : blocks_) {
    (block.mixture ? mixtures : dense) += 1;
    (block.mixture ? of_mixture : of_dense) = &block;
    if (!block.attn.value_gate) continue;
    ++gates;
    of_gate = &block;
  }
  constexpr ProductRole kFrontEnd = ProductRole::kFrontEnd;
  const KappaAttention& attn = blocks_.front().attn;
  Products products;
  products.add(product_of("qkv", attn.qkv.weight, rows, options_.layers));
  if (of_gate != nullptr) {
    products.add(product_of("value gate", *of_gate->attn.value_gate, rows, gates, kFrontEnd));
  }
  products.add(product_of("projection", attn.proj.weight, rows, options_.layers));
  if (of_dense != nullptr) {
    products.add(product_of("feed-forward in", of_dense->dense->in.weight, rows, dense));
    products.add(product_of("feed-forward out", of_dense->dense->out.weight, rows, dense));
  }
  if (of_mixture != nullptr) {
    const KappaMixture& m = *of_mixture->mixture;
    const int64_t slots = rows * keys_.top_k;
    products.add(product_of("router", m.router.weight, rows, mixtures, kFrontEnd));
    products.add(product_of("experts in", m.in, slots, mixtures));
    products.add(product_of("experts out", m.out, slots, mixtures));
  }
  products.add(product_of("head", lm_head_, rows, 1, ProductRole::kHead));
  products.add_attention({"attention", sequences, options_.heads, options_.context,
                          options_.width / options_.heads, 0, 0, options_.layers});
  return products;
}

}  // namespace anabranch
