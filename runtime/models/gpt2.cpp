#include "runtime/models/gpt2.h"

#include <utility>

#include "core/autograd/recompute.h"
#include "core/base/range.h"

namespace anabranch {

Gpt2::Gpt2(const Gpt2Options& options)
    : options_(checked(options)),
      tables_(options_),
      ln_f_("ln_f", options_.width, options_.norm_eps),
      head_(tables_.tokens) {
  blocks_.reserve(static_cast<size_t>(options_.layers));  // addresses of parameters are stable
  for (int64_t l = 0; l < options_.layers; ++l) {
    blocks_.emplace_back("h." + std::to_string(l) + ".", options_);
  }
  set_compute(*this, options_.compute);
}

void Gpt2::visit(const std::function<void(Param&)>& f) {
  tables_.visit(f);
  for (Gpt2Block& block : blocks_) block.visit(f);
  ln_f_.visit(f);
}

Var Gpt2::hidden(Tape* tape, const MicroBatch& batch, const StepKey* key) {
  const PlacedDropout drop(options_.dropout, batch, key);
  Var x = drop(tables_(tape, batch.inputs), options_.layers, 0);
  for (int64_t l = 0; l < options_.layers; ++l) {
    const Range range("layer", l);
    const auto run = [&block = blocks_[static_cast<size_t>(l)],
                      context = whole_context(batch, options_.heads, drop, l)](const Var& v) {
      return block(v, context);
    };
    x = options_.recompute ? recompute(x, run) : run(x);
  }
  return ln_f_(x);
}

Var Gpt2::loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) {
  return head_.loss(hidden(&tape, batch, &key), batch.targets, scale);
}

Tensor Gpt2::token_losses(const MicroBatch& batch, Routing /*routing*/) {
  return head_.losses(hidden(nullptr, batch, nullptr).value(), batch.targets);
}

Tensor Gpt2::logits(const Tensor& ids) {
  return head_.logits(hidden(nullptr, {ids, {}, 0}, nullptr).value());
}

DecodeState Gpt2::decode_state(int64_t batch, int64_t tokens) const {
  return empty_caches(tables_.tokens.value, options_.layers, batch, tokens, options_.width);
}

Tensor Gpt2::decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                           DecodeState& state) {
  Var x = tables_(nullptr, ids, state.layers.front().lengths);
  for (size_t l = 0; l < blocks_.size(); ++l) {
    x = blocks_[l](x, cached_context(state.layers[l], options_.heads, new_tokens));
  }
  return ln_f_(x).value();
}

Products Gpt2::products(int64_t sequences) const {
  Products products = gpt2_block_products(options_, sequences);
  products.add(head_product(sequences * options_.context, options_.width, options_.vocabulary));
  return products;
}

}  // namespace anabranch
