#include "runtime/models/cmollm.h"

#include "core/autograd/recompute.h"
#include "core/base/range.h"
#include "core/ops/add.h"
#include "core/ops/attention.h"
#include "core/ops/prefix_mean.h"
#include "core/ops/stream_balance.h"
#include "runtime/models/auxiliary.h"

namespace anabranch {
namespace {

CmollmKeys resolved(CmollmKeys keys) {
  if (keys.gate_site == GateSite::kAuto) {
    keys.gate_site = keys.mode == StreamMode::kPipeline ? GateSite::kFeature : GateSite::kRouter;
  }
  return keys;
}

Gpt2Options checked_streams(const Gpt2Options& options, const CmollmKeys& keys) {
  if (keys.mode == StreamMode::kPipeline && options.dropout > 0) {
    throw config_error("model.dropout is ", options.dropout,
                       ", and model.mode pipeline has none; set it to 0");
  }
  if (keys.mix == MixPoint::kPost && options.gelu != GeluForm::kTanh) {
    throw config_error(
        "model.gelu is erf, and model.mix post has the tanh form alone; leave one out");
  }
  return checked(options);
}

int64_t units(const Gpt2Options& o, const CmollmKeys& keys) {
  if (keys.mode == StreamMode::kFfn) return o.layers;
  const int64_t each = keys.span > 0 ? keys.span : o.layers;
  return (o.layers + each - 1) / each;
}

// The document starts of each of N copies of the batch.
Tensor repeated(const Tensor& starts, int64_t streams) {
  if (starts.empty()) return starts;
  Tensor all = starts.like({streams * starts.dim(0), starts.dim(1)}, DType::kI32, "starts");
  for (int64_t k = 0; k < streams; ++k) {
    all.view(k * starts.count(), starts.shape()).copy_from(starts);
  }
  return all;
}

std::string layer_name(int64_t l) { return "h." + std::to_string(l) + "."; }

}  // namespace

CmollmBlock::CmollmBlock(const std::string& prefix, const Gpt2Options& o, const CmollmKeys& keys,
                         const StreamRegion& region)
    : ln_1(prefix + "ln_1", o.width, o.norm_eps),
      attn(prefix + "attn.", o),
      ln_2(prefix + "ln_2", o.width, o.norm_eps),
      ffn(prefix + "ffn.", o, keys, region) {}

Var CmollmBlock::operator()(const Var& x, const BlockContext& block, const StreamContext& streams) {
  const auto [h, u] = ln_2.add(x, block.drop(attn(ln_1(x), block), 0));
  return h + block.drop(ffn(u, streams), 1);
}

Cmollm::Cmollm(const Gpt2Options& options, const CmollmKeys& keys, const Regions& regions)
    : options_(checked_streams(options, keys)),
      keys_(resolved(keys)),
      copies_(pipeline() ? CopyRegion(regions, keys_.streams) : CopyRegion()),
      tables_(options_),
      span_layers_(keys_.span > 0 ? keys_.span : options_.layers),
      ln_f_("ln_f", options_.width, options_.norm_eps),
      head_(tables_.tokens),
      figures_(units(options_, keys_), keys_.streams,
               pipeline() ? StreamRegion() : StreamRegion(regions)) {
  const int64_t L = options_.layers;
  (pipeline() ? blocks_.reserve(static_cast<size_t>(L)) : layers_.reserve(static_cast<size_t>(L)));
  for (int64_t l = 0; l < L; ++l) {
    if (pipeline()) {
      blocks_.emplace_back(layer_name(l), options_);
      continue;
    }
    layers_.emplace_back(layer_name(l), options_, keys_, StreamRegion(regions));
    quiet_.push_back({layer_name(l) + "ffn.quiet_steps", Tensor({keys_.streams}, DType::kF64)});
    quiet_.back().value.fill_zero();
  }
  spans_.reserve(static_cast<size_t>(units(options_, keys_)));
  for (int64_t j = 0; pipeline() && j < units(options_, keys_); ++j) {
    spans_.emplace_back("span." + std::to_string(j) + ".", options_.width, keys_, copies_);
  }
  set_compute(*this, options_.compute);
}

void Cmollm::visit(const std::function<void(Param&)>& f) {
  tables_.visit(f);
  for (CmollmBlock& layer : layers_) layer.visit(f);
  for (size_t j = 0; j < spans_.size(); ++j) {
    for (StreamExpand& e : spans_[j].expand) e.visit(f);
    const size_t first = j * static_cast<size_t>(span_layers_);
    for (size_t l = first; l < std::min(first + static_cast<size_t>(span_layers_), blocks_.size());
         ++l) {
      blocks_[l].visit(f);
    }
    spans_[j].weights.visit(f);
    spans_[j].mix.visit(f);
    spans_[j].proj.visit(f);
  }
  ln_f_.visit(f);
}

void Cmollm::visit_buffers(const std::function<void(Buffer&)>& f) {
  for (Buffer& quiet : quiet_) f(quiet);
}

bool Cmollm::has_causal_mode() const {
  const bool averages =
      keys_.variant == GateVariant::kContextAware || keys_.variant == GateVariant::kAdaptive;
  return !averages || keys_.ctx != GateContext::kGlobal;
}

StreamContext Cmollm::averaging(int64_t sequences, const Tensor& starts) const {
  StreamContext context;
  const MeanForm form = mean_form(keys_);
  const bool global = form.kind == MeanForm::Kind::kGlobal;
  const Tensor from = global ? Tensor() : starts.beside(tables_.tokens.value);
  context.mean = [sequences, form, from](const Var& v) {
    return prefix_mean(v, sequences, form, from);
  };
  return context;
}

StreamContext Cmollm::whole(const Pass& pass, int64_t unit) {
  const int64_t B = pass.batch.inputs.dim(0);
  StreamContext context = averaging(B, pass.batch.document_starts);
  if (pass.key == nullptr) {
    context.balance = [](const Var& y, const Var& /*gates*/) { return y; };
    return context;
  }
  const AuxiliaryLosses losses{static_cast<double>(pass.batch.inputs.count()) * pass.scale,
                               pass.key->measures};
  const int64_t together = keys_.bal_scope == BalanceScope::kSequence ? B : 1;
  context.balance = [this, unit, together, losses](const Var& y, const Var& gates) {
    if (Measures* to = losses.figures(gates.tape())) figures_.add_gates(*to, unit, gates.value());
    return losses.attach(y, stream_balance(gates, together), keys_.bal_alpha);
  };
  if (losses.measures == nullptr || !losses.measures->detailed) return context;
  context.probe = [this, unit, losses](const Var& s, const Param& kernels) {
    Measures* to = losses.figures(s.tape());
    if (to != nullptr) figures_.add_branches(*to, unit, s.value(), kernels);
  };
  return context;
}

Var Cmollm::run_layers(const Var& start, const Pass& pass) {
  const PlacedDropout drop(options_.dropout, pass.batch, pass.key);
  Var x = drop(start, options_.layers, 0);
  for (int64_t l = 0; l < options_.layers; ++l) {
    const Range range("layer", l);
    const auto run = [&layer = layers_[static_cast<size_t>(l)],
                      block = whole_context(pass.batch, options_.heads, drop, l),
                      streams = whole(pass, l)](const Var& v) { return layer(v, block, streams); };
    x = options_.recompute ? recompute(x, run) : run(x);
  }
  return x;
}

Var Cmollm::run_spans(Tape* tape, const Pass& pass) {
  // Of all ranks whose streams lie together. Ids travel to the first span in place of what the
  // tables make of them, which every rank has.
  const Tensor ids = copies_.rows_of_all(pass.batch.inputs);
  const Tensor starts = copies_.rows_of_all(pass.batch.document_starts);
  const int64_t n = copies_.count(), sequences = n * ids.dim(0);
  const Tensor all = repeated(starts, n).beside(tables_.tokens.value);
  const auto attend = [sequences, heads = options_.heads, all](const Var& v) {
    return attention(v, sequences, heads, all);
  };
  const BlockContext block{attend, [](const Var& v, int /*site*/) { return v; }};
  const std::vector<StreamContext> contexts(static_cast<size_t>(n), averaging(ids.dim(0), starts));
  std::vector<Var> inputs(static_cast<size_t>(n), tables_(tape, ids));
  Var x;
  for (size_t j = 0; j < spans_.size(); ++j) {
    x = spans_[j].split(inputs, contexts);
    const size_t first = j * static_cast<size_t>(span_layers_);
    for (size_t l = first; l < first + static_cast<size_t>(span_layers_) && l < blocks_.size();
         ++l) {
      const Range range("layer", static_cast<int64_t>(l));
      const auto run = [&layer = blocks_[l], block](const Var& v) { return layer(v, block); };
      x = options_.recompute ? recompute(x, run) : run(x);
    }
    x = spans_[j].merge(copies_.come_home(x), whole(pass, static_cast<int64_t>(j)));
    if (j + 1 < spans_.size()) inputs = copies_.spread(x);
  }
  return x;
}

Var Cmollm::hidden(Tape* tape, const Pass& pass) {
  return ln_f_(pipeline() ? run_spans(tape, pass)
                          : run_layers(tables_(tape, pass.batch.inputs), pass));
}

Var Cmollm::loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) {
  return head_.loss(hidden(&tape, {batch, &key, scale}), batch.targets, scale);
}

Tensor Cmollm::token_losses(const MicroBatch& batch, Routing routing) {
  if (routing == Routing::kCausal && !has_causal_mode()) {
    throw config_error("model.ctx is global: the gates see the whole sequence, so there is no ",
                       "causal loss; train with ctx prefix_mean or ema");
  }
  return head_.losses(hidden(nullptr, {batch, nullptr, 0}).value(), batch.targets);
}

Tensor Cmollm::logits(const Tensor& ids) {
  const MicroBatch batch{ids, {}, 0};
  return head_.logits(hidden(nullptr, {batch, nullptr, 0}).value());
}

size_t Cmollm::measure_places(int64_t /*sequences*/) const { return figures_.places(); }

void Cmollm::end_step(const Measures& measures) {
  for (size_t l = 0; l < quiet_.size(); ++l) {
    figures_.count_quiet(measures, static_cast<int64_t>(l), quiet_[l].value);
  }
}

std::vector<Reading> Cmollm::readings(const Measures& measures) const {
  std::vector<Reading> all{{Metric::kAuxiliaryLoss, 0, 0, measures.at(0)}};
  for (int64_t u = 0; u < units(options_, keys_); ++u) {
    const auto at = static_cast<size_t>(u);
    figures_.read_gates(all, measures, u, pipeline() ? Tensor() : quiet_[at].value);
    if (!pipeline()) figures_.read_kernels(all, u, layers_[at].ffn.streams);
  }
  return all;
}

ModelCost Cmollm::cost() const {
  ModelCost cost = gpt2_cost(options_);
  const int64_t L = options_.layers, C = options_.width, F = options_.ffn_width, N = keys_.streams;
  const FrontEndSize front = front_end_size(C, keys_);
  int64_t extra = 0;
  if (pipeline()) {
    const int64_t spans = units(options_, keys_);
    const FrontEndSize expand =
        keys_.variant == GateVariant::kLinear ? FrontEndSize{C * C + C, C * C} : front;
    const bool mlp = keys_.agg == Aggregator::kMlp;
    const int64_t weigh = mlp ? N * C * C + C + C * N + N : N * N * C;
    extra = spans * (N * expand.parameters + weigh + 2 * C * C + C);
    const double head = static_cast<double>(options_.vocabulary * C), n = static_cast<double>(N);
    cost.linear_macs =
        n * (cost.linear_macs - head) + head + static_cast<double>(spans * 2 * C * C);
    cost.attention_macs *= n;
    cost.front_end_macs =
        static_cast<double>(spans * (N * expand.macs + (mlp ? N * C * C + C * N : N * N * C)));
  } else {
    extra = L * ((N - 1) * (C * F + F) + C * N + N + front.parameters);
    cost.linear_macs += static_cast<double>(L * (N - 1) * C * F);
    cost.front_end_macs = static_cast<double>(L * (front.macs + C * N));
  }
  cost.parameters += extra;
  cost.non_embedding_parameters += extra;
  return cost;
}

Products Cmollm::products(int64_t sequences) const {
  const int64_t rows = sequences * options_.context, N = keys_.streams;
  const int64_t spans = std::ssize(spans_);
  Products products = gpt2_block_products(options_, pipeline() ? N * sequences : sequences);
  if (pipeline()) {
    const StreamSpan& span = spans_.front();
    const StreamExpand& expand = span.expand.front();
    if (expand.plain) {
      products.add(
          product_of("expand", expand.plain->weight, rows, spans * N, ProductRole::kFrontEnd));
    }
    expand.front.add_products(products, rows, spans * N);
    span.weights.add_products(products, rows, spans);
    products.add(product_of("merge mix", span.mix.weight, rows, spans));
    products.add(product_of("merge projection", span.proj.weight, rows, spans));
  } else {
    std::erase_if(products.linear,
                  [](const Product& p) { return p.name.starts_with("feed-forward"); });
    layers_.front().ffn.add_products(products, rows, options_.layers);
  }
  products.add(head_product(rows, options_.width, options_.vocabulary));
  return products;
}

}  // namespace anabranch
