#include "runtime/models/parascale.h"

#include "core/autograd/recompute.h"
#include "core/base/range.h"
#include "core/ops/attention.h"
#include "core/ops/cached_attention.h"
#include "core/ops/fold_streams.h"
#include "core/ops/mix_streams.h"
#include "core/ops/prefix_rows.h"
#include "core/ops/repeat_streams.h"

namespace anabranch {
namespace {

Var no_drop(const Var& x, int /*site*/) { return x; }

Gpt2Options checked_streams(const Gpt2Options& options) {
  if (options.dropout > 0) {
    throw config_error("model.dropout is ", options.dropout,
                       ", and a parascale model has none; set it to 0");
  }
  return checked(options);
}

}  // namespace

ParascaleBlock::ParascaleBlock(const std::string& prefix, const Gpt2Options& o,
                               const ParascaleKeys& keys, const CopyRegion& where)
    : block(prefix, o),
      prefix_k(prefix + "attn.prefix_k.weight", {keys.streams, keys.prefix, o.width},
               Init::normal(kGpt2InitStd)),
      prefix_v(prefix + "attn.prefix_v.weight", prefix_k.shape, Init::normal(kGpt2InitStd)),
      heads(o.heads) {
  where.split(prefix_k);
  where.split(prefix_v);
}

Var ParascaleBlock::operator()(const Var& x, int64_t sequences) {
  const auto attend = [this, sequences](const Var& qkv) {
    if (!prefixed()) return attention(qkv, sequences, heads);
    const Var y = attention(with_prefix(qkv, prefix_k, prefix_v, sequences), sequences, heads);
    return without_prefix(y, sequences, prefix_k.shape[1]);
  };
  return block(x, {attend, no_drop});
}

Var ParascaleBlock::decode(const Var& x, KvCache& cache, std::span<const int64_t> new_tokens) {
  return block(x, cached_context(cache, heads, new_tokens));
}

void ParascaleBlock::fill(KvCache& cache) const {
  if (prefix_k.value.empty() || !prefixed()) return;
  cached_attention(prefix_rows(prefix_k.value, prefix_v.value, std::ssize(cache.lengths)), cache,
                   heads);
}

Parascale::Parascale(const Gpt2Options& options, const ParascaleKeys& keys, const Regions& regions)
    : options_(checked_streams(options)),
      keys_(keys),
      copies_(regions, keys.streams),
      tables_(options_),
      ln_f_("ln_f", options_.width, options_.norm_eps),
      weights_("aggregate.", options_.width, keys.streams, StreamWeights::Form::kSilu),
      head_(tables_.tokens) {
  blocks_.reserve(static_cast<size_t>(options_.layers));
  for (int64_t l = 0; l < options_.layers; ++l) {
    blocks_.emplace_back("h." + std::to_string(l) + ".", options_, keys_, copies_);
  }
  set_compute(*this, options_.compute);
}

void Parascale::visit(const std::function<void(Param&)>& f) {
  tables_.visit(f);
  for (ParascaleBlock& block : blocks_) block.visit(f);
  ln_f_.visit(f);
  if (keys_.streams > 1) weights_.visit(f);
}

Var Parascale::merged(const Var& x) {
  Var h = ln_f_(x);
  if (keys_.streams == 1) return h;
  const Var folded = fold_streams(h, keys_.streams);
  return mix_streams(folded, weights_(folded), keys_.smoothing);
}

Var Parascale::hidden(Tape* tape, const MicroBatch& batch) {
  // Of all ranks whose copies lie together; every rank has the tables.
  const Tensor ids = copies_.rows_of_all(batch.inputs);
  const int64_t sequences = copies_.count() * ids.dim(0);
  Var x = repeat_streams(tables_(tape, ids), copies_.count());
  int64_t layer = 0;
  for (ParascaleBlock& block : blocks_) {
    const Range range("layer", layer++);
    const auto run = [&block, sequences](const Var& v) { return block(v, sequences); };
    x = options_.recompute ? recompute(x, run) : run(x);
  }
  return merged(copies_.come_home(x));
}

Var Parascale::loss(Tape& tape, const MicroBatch& batch, const StepKey& /*key*/, double scale) {
  return head_.loss(hidden(&tape, batch), batch.targets, scale);
}

Tensor Parascale::token_losses(const MicroBatch& batch, Routing /*routing*/) {
  return head_.losses(hidden(nullptr, batch).value(), batch.targets);
}

Tensor Parascale::logits(const Tensor& ids) {
  return head_.logits(hidden(nullptr, {ids, {}, 0}).value());
}

DecodeState Parascale::decode_state(int64_t batch, int64_t tokens) const {
  AB_CHECK(copies_.alone(), "decoding needs all ", keys_.streams, " copies on one rank");
  DecodeState state = empty_caches(tables_.tokens.value, options_.layers, keys_.streams * batch,
                                   tokens + keys_.prefix, options_.width);
  state.copies = keys_.streams;
  for (size_t l = 0; l < blocks_.size(); ++l) blocks_[l].fill(state.layers[l]);
  return state;
}

Tensor Parascale::decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                                DecodeState& state) {
  const int64_t before = keys_.streams > 1 ? keys_.prefix : 0;
  std::vector<int64_t> first;
  for (size_t b = 0; b < new_tokens.size(); ++b) {
    first.push_back(state.layers.front().lengths[b] - before);
  }
  Var x = repeat_streams(tables_(nullptr, ids, first), keys_.streams);
  const std::vector<int64_t> counts = repeat_counts(new_tokens, keys_.streams);
  for (size_t l = 0; l < blocks_.size(); ++l) {
    x = blocks_[l].decode(x, state.layers[l], counts);
  }
  return merged(x).value();
}

ModelCost Parascale::cost() const {
  ModelCost cost = gpt2_cost(options_);
  const int64_t P = keys_.streams, C = options_.width, L = options_.layers;
  if (P == 1) return cost;
  const int64_t extra = P * (C * C + C + 1) + C + 2 * P * L * keys_.prefix * C;
  cost.parameters += extra;
  cost.non_embedding_parameters += extra;
  const auto head = static_cast<double>(options_.vocabulary * C);
  const auto streams = static_cast<double>(P);
  cost.linear_macs = streams * (cost.linear_macs - head) + head;
  cost.attention_macs =
      streams * (cost.attention_macs + 2.0 * static_cast<double>(L * keys_.prefix * C));
  cost.front_end_macs = static_cast<double>(P * C * C + P * C + P * C);
  return cost;
}

Products Parascale::products(int64_t sequences) const {
  const int64_t P = keys_.streams, C = options_.width, rows = sequences * options_.context;
  Products products = gpt2_block_products(options_, P * sequences);
  if (P > 1) {
    for (AttentionProduct& p : products.attention) p.before = keys_.prefix;
    weights_.add_products(products, rows, 1);
  }
  products.add(head_product(rows, C, options_.vocabulary));
  return products;
}

}  // namespace anabranch
