#include "runtime/models/moep_msit.h"

#include <algorithm>

#include "core/autograd/recompute.h"
#include "core/base/range.h"
#include "core/ops/embedding.h"
#include "runtime/config/model_config.h"
#include "runtime/models/gpt2_block.h"
#include "runtime/models/masked_batch.h"

namespace anabranch {

MoepOptions checked(MoepOptions o) {
  const MoepKeys& keys = o.keys;
  check_sizes({o.layers, o.width, o.heads, o.context, o.vocabulary});
  if (o.ffn_width == 0) o.ffn_width = two_thirds_of_four(o.width, keys.ffn_round);
  if (o.expert_ffn_width == 0) {
    o.expert_ffn_width = two_thirds_of_four(keys.expert_width, keys.ffn_round);
  }
  return o;
}

MoepMsit::MoepMsit(const MoepOptions& options, const Regions& regions)
    : options_(checked(options)),
      regions_(regions),
      tokens_("wte.weight", {options_.vocabulary, options_.width}, Init::normal(kMoepInitStd),
              true),
      ln_f_("ln_f", options_.width),
      head_(tokens_) {
  tokens_.role = Role::kEmbedding;
  AB_CHECK(options_.keys.segments != SegmentScope::kPool ||
               (regions_.model_size() == 1 && regions_.pool_size() == 1),
           "experts attend over a pool that lies on ", regions_.pool_size(), " ranks, and they on ",
           regions_.model_size());
  for (int64_t l = 0; l < options_.layers; ++l) {
    blocks_.emplace_back("h." + std::to_string(l) + ".", options_, l, regions_);
  }
  set_compute(*this, options_.compute);
}

void MoepMsit::visit(const std::function<void(Param&)>& f) {
  f(tokens_);
  for (MoepBlock& block : blocks_) block.visit(f);
  ln_f_.visit(f);
}

void MoepMsit::visit_buffers(const std::function<void(Buffer&)>& f) {
  if (options_.keys.select == Selection::kTokenChoice) return;
  for (MoepBlock& block : blocks_) block.visit_buffers(f);
}

void MoepMsit::check_pools(int64_t sequences) const {
  const int64_t pool = options_.pool_sequences(), ranks = regions_.pool_size();
  if (ranks == 1 ? sequences % pool == 0 : sequences * ranks == pool) return;
  throw config_error("model.pool_sequences ", pool, " does not divide the ", sequences,
                     " sequences of a batch",
                     ranks == 1 ? "" : join(" on each of ", ranks, " ranks"),
                     ": give a pool or a micro-batch that fits");
}

MoepPass MoepMsit::pass_of(const Tensor& ids) const {
  MoepPass pass;
  pass.batch = ids.dim(0);
  pass.tokens = ids.dim(1);
  pass.positions = positions_from(ids).beside(tokens_.value);
  return pass;
}

Var MoepMsit::hidden(Tape* tape, const MicroBatch& batch, const StepKey* key,
                     const MoepPass& pass) {
  const PlacedDropout drop(static_cast<float>(options_.keys.dropout), batch, key);
  Var x = drop(embedding(tape, flat(batch.inputs), tokens_, {}, nullptr), 0, 0);
  int64_t layer = 0;
  for (MoepBlock& block : blocks_) {
    const Range range("layer", layer++);
    const auto run = [&block, pass](const Var& v) { return block(v, pass); };
    x = options_.recompute ? recompute(x, run) : run(x);
  }
  return ln_f_(x);
}

Var MoepMsit::loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) {
  const int64_t T = batch.inputs.dim(1);
  if (is_masked(options_.keys, key)) {
    const int64_t count = masked_tokens(options_.keys, key.progress, T);
    const MicroBatch batch_of_step =
        masked(batch, options_.keys, options_.vocabulary - 1, count, key);
    const double part = static_cast<double>(T) / static_cast<double>(count);
    return masked_loss(tape, batch_of_step, key, scale * part);
  }
  MoepPass pass = pass_of(batch.inputs);
  pass.losses.share = static_cast<double>(batch.inputs.count()) * scale;
  return loss_of(tape, batch, key, pass, scale);
}

Var MoepMsit::masked_loss(Tape& tape, const MicroBatch& masked, const StepKey& key, double scale) {
  const Tensor& ids = masked.inputs;
  const int64_t T = ids.dim(1);
  MoepPass pass = pass_of(ids);
  Tensor last_key = ids.like(ids.shape(), DType::kI32, "moep.last_key");
  std::ranges::fill(last_key.span<int32_t>(), static_cast<int32_t>(T - 1));
  pass.last_key = last_key.beside(tokens_.value);
  const auto targets = masked.targets.span<int32_t>();
  const auto counted = std::ranges::count_if(targets, [](int32_t id) { return id >= 0; });
  pass.losses.share = static_cast<double>(counted) * scale;
  if (key.measures != nullptr) {
    const double of_batch = static_cast<double>(counted) / static_cast<double>(ids.count());
    key.measures->add(ChoiceMeasures::kMasked, of_batch * pass.losses.share);
  }
  return loss_of(tape, masked, key, pass, scale);
}

Var MoepMsit::loss_of(Tape& tape, const MicroBatch& batch, const StepKey& key, MoepPass pass,
                      double scale) {
  check_pools(pass.batch);
  pass.losses.measures = key.measures;
  pass.first_pool = batch.first_sample / options_.pool_sequences();
  return head_.loss(hidden(&tape, batch, &key, pass), batch.targets, scale);
}

Tensor MoepMsit::token_losses(const MicroBatch& batch, Routing routing) {
  MoepPass pass = pass_of(batch.inputs);
  pass.causal = routing == Routing::kCausal;
  pass.predicted = true;
  if (!pass.causal) check_pools(pass.batch);
  return head_.losses(hidden(nullptr, batch, nullptr, pass).value(), batch.targets);
}

Tensor MoepMsit::logits(const Tensor& ids) {
  const MoepPass pass = pass_of(ids);
  check_pools(pass.batch);
  return head_.logits(hidden(nullptr, {ids, {}, 0}, nullptr, pass).value());
}

DecodeState MoepMsit::decode_state(int64_t batch, int64_t /*tokens*/) const {
  DecodeState state;
  state.ids.resize(static_cast<size_t>(batch));
  return state;
}

Tensor MoepMsit::decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                               DecodeState& state) {
  const int64_t B = ids.dim(0), S = ids.dim(1), C = options_.width;
  Tensor fresh;  // [B * S, C]
  for (int64_t b = 0; b < B; ++b) {
    std::vector<int32_t>& all = state.ids[static_cast<size_t>(b)];
    const int64_t before = std::ssize(all), count = new_tokens[static_cast<size_t>(b)];
    const auto row =
        ids.span<int32_t>().subspan(static_cast<size_t>(b * S), static_cast<size_t>(S));
    all.insert(all.end(), row.begin(), row.begin() + count);
    Tensor sequence = ids.like({1, std::ssize(all)}, DType::kI32, "moep.decode");
    std::ranges::copy(all, sequence.data<int32_t>());
    MoepPass pass = pass_of(sequence);
    pass.causal = pass.predicted = true;
    const Tensor x = hidden(nullptr, {sequence, {}, 0}, nullptr, pass).value();
    if (fresh.empty()) fresh = x.like({B * S, C}, x.dtype(), "moep.decode");
    fresh.view(b * S * C, {count * C}).copy_from(x.view(before * C, {count * C}));
  }
  return fresh;
}

bool MoepMsit::looks_ahead() const {
  const Selection select = options_.keys.select;
  return select == Selection::kEcBatch || select == Selection::kEcSeq ||
         options_.keys.order == SlotOrder::kAffinity ||
         options_.keys.segments == SegmentScope::kPool;
}

size_t MoepMsit::measure_places(int64_t sequences) const {
  const size_t figures = ChoiceMeasures(options_.layers, options_.experts()).places();
  if (options_.keys.select == Selection::kTokenChoice) return figures;
  const int64_t pools = sequences / options_.pool_sequences();
  return figures + static_cast<size_t>(pools * options_.layers * options_.experts());
}

void MoepMsit::end_step(const Measures& measures) {
  for (MoepBlock& block : blocks_) block.end_step(measures);
}

std::vector<Reading> MoepMsit::readings(const Measures& measures) const {
  const MoepKeys& keys = options_.keys;
  std::vector<Reading> all;
  if (keys.select == Selection::kTokenChoice || keys.select == Selection::kPredictor) {
    all.push_back({Metric::kAuxiliaryLoss, 0, 0, measures.at(0)});
  }
  if (keys.causal_ratio < 1) {
    all.push_back({Metric::kMaskedTokens, 0, 0, measures.at(ChoiceMeasures::kMasked)});
  }
  for (const MoepBlock& block : blocks_) block.read(all, measures);
  return all;
}

ModelCost MoepMsit::cost() const {
  const MoepOptions& o = options_;
  const MoepKeys& keys = o.keys;
  const int64_t C = o.width, W = keys.expert_width, E = o.experts(), L = o.layers;
  const int64_t dense = keys.global_block ? 4 * C * C + 3 * C * o.ffn_width : 0;
  const int64_t expert = 4 * W * W + 3 * W * o.expert_ffn_width;
  const int64_t norms = (keys.global_block ? 6 * C : 0) + 4 * C + E * 6 * W;
  const int64_t hidden = keys.select == Selection::kPredictor ? 64 : 0;
  const int64_t predictor = hidden * (C + E), biases = hidden > 0 ? hidden + E : 0;
  const auto real = [](int64_t count) { return static_cast<double>(count); };
  ModelCost cost;
  cost.non_embedding_parameters =
      L * (dense + norms + C * E + predictor + biases + 2 * C * W + E * expert) + 2 * C;
  cost.parameters = cost.non_embedding_parameters + o.vocabulary * C;
  const bool by_token = keys.select == Selection::kTokenChoice;
  const double slots = by_token ? real(o.choices()) : keys.capacity;  // of a token, on average
  cost.linear_macs =
      real(L) * (real(dense + C * W) + slots * real(C * W + expert)) + real(o.vocabulary * C);
  cost.front_end_macs = real(L * (C * E + predictor));
  const double held = slots / real(E);  // share of the tokens that an expert holds
  double keys_seen = 0;                 // full windows, summed over the experts
  for (const int64_t window : keys.windows) {
    keys_seen +=
        keys.windowed ? real(std::min(window, o.context)) : (held * real(o.context) + 1) / 2;
  }
  const double of_dense = keys.global_block ? real(C * (o.context + 1)) : 0;
  cost.attention_macs = real(L) * (of_dense + held * 2 * real(W) * keys_seen);
  return cost;
}

Products MoepMsit::products(int64_t sequences) const {
  Products products = blocks_.front().products(sequences, options_.layers);
  products.add(product_of("head", tokens_, sequences * options_.context, 1, ProductRole::kHead));
  return products;
}

}  // namespace anabranch
