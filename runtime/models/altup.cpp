#include "runtime/models/altup.h"

#include "core/autograd/recompute.h"
#include "core/base/range.h"
#include "core/ops/altup_correct.h"
#include "core/ops/columns.h"
#include "core/ops/mix_streams.h"
#include "core/ops/scalar_mix.h"

namespace anabranch {
namespace {

// The sizes of tables and final norm.
Gpt2Options table_options(Gpt2Options o, const AltupKeys& keys) {
  if (!keys.recycled) o.width *= keys.blocks;
  return o;
}

}  // namespace

AltupBlock::AltupBlock(const std::string& prefix, const Gpt2Options& o, const AltupKeys& keys,
                       int64_t layer)
    : block(prefix, o),
      predict(prefix + "altup.predict", {keys.blocks, keys.blocks}, Init::identity()),
      correct(prefix + "altup.correct", {keys.blocks}, Init::constant(1)),
      active(keys.choice == BlockChoice::kAlternating ? layer % keys.blocks : 0) {
  predict.wide = true;
}

Var AltupBlock::operator()(const Var& x, const BlockContext& context) {
  const std::vector<Var> blocks = split_columns(x, correct.shape[0]);
  const std::vector<Var> predicted = scalar_mix(blocks, predict);
  const Var computed = block(blocks[static_cast<size_t>(active)], context);
  return join_columns(altup_correct(predicted, computed, active, correct));
}

Altup::Altup(const Gpt2Options& options, const AltupKeys& keys)
    : options_(checked(options)),
      keys_(keys),
      tables_(table_options(options_, keys_)),
      ln_f_("ln_f", table_options(options_, keys_).width, options_.norm_eps),
      head_(tables_.tokens) {
  blocks_.reserve(static_cast<size_t>(options_.layers));
  for (int64_t l = 0; l < options_.layers; ++l) {
    blocks_.emplace_back("h." + std::to_string(l) + ".", options_, keys_, l);
  }
  set_compute(*this, options_.compute);
}

void Altup::visit(const std::function<void(Param&)>& f) {
  tables_.visit(f);
  for (AltupBlock& block : blocks_) block.visit(f);
  ln_f_.visit(f);
}

Var Altup::first(const Var& rows) const {
  if (!keys_.recycled) return rows;
  return join_columns(std::vector<Var>(static_cast<size_t>(keys_.blocks), rows));
}

Var Altup::last(const Var& x) { return ln_f_(keys_.recycled ? mean_streams(x, keys_.blocks) : x); }

Var Altup::hidden(Tape* tape, const MicroBatch& batch, const StepKey* key) {
  const PlacedDropout drop(options_.dropout, batch, key);
  Var x = first(drop(tables_(tape, batch.inputs), options_.layers, 0));
  for (int64_t l = 0; l < options_.layers; ++l) {
    const Range range("layer", l);
    const auto run = [&block = blocks_[static_cast<size_t>(l)],
                      context = whole_context(batch, options_.heads, drop, l)](const Var& v) {
      return block(v, context);
    };
    x = options_.recompute ? recompute(x, run) : run(x);
  }
  return last(x);
}

Var Altup::loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) {
  return head_.loss(hidden(&tape, batch, &key), batch.targets, scale);
}

Tensor Altup::token_losses(const MicroBatch& batch, Routing /*routing*/) {
  return head_.losses(hidden(nullptr, batch, nullptr).value(), batch.targets);
}

Tensor Altup::logits(const Tensor& ids) {
  return head_.logits(hidden(nullptr, {ids, {}, 0}, nullptr).value());
}

DecodeState Altup::decode_state(int64_t batch, int64_t tokens) const {
  return empty_caches(tables_.tokens.value, options_.layers, batch, tokens, options_.width);
}

Tensor Altup::decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                            DecodeState& state) {
  Var x = first(tables_(nullptr, ids, state.layers.front().lengths));
  for (size_t l = 0; l < blocks_.size(); ++l) {
    x = blocks_[l](x, cached_context(state.layers[l], options_.heads, new_tokens));
  }
  return last(x).value();
}

ModelCost Altup::cost() const {
  ModelCost cost = gpt2_cost(options_);
  const int64_t K = keys_.blocks, scalars = options_.layers * (K * K + K);
  cost.parameters += scalars;
  cost.non_embedding_parameters += scalars;
  const auto blocks = static_cast<double>(K), C = static_cast<double>(options_.width);
  cost.front_end_macs = static_cast<double>(options_.layers) * (blocks * blocks + 2 * blocks) * C;
  if (keys_.recycled) return cost;
  const int64_t tables = (options_.vocabulary + options_.context) * options_.width;
  cost.parameters += (K - 1) * (tables + 2 * options_.width);
  cost.non_embedding_parameters += (K - 1) * 2 * options_.width;
  cost.linear_macs += (blocks - 1) * static_cast<double>(options_.vocabulary) * C;
  return cost;
}

Products Altup::products(int64_t sequences) const {
  Products products = gpt2_block_products(options_, sequences);
  products.add(head_product(sequences * options_.context, table_options(options_, keys_).width,
                            options_.vocabulary));
  return products;
}

}  // namespace anabranch
