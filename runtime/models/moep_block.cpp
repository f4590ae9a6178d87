#include "runtime/models/moep_block.h"

#include <algorithm>
#include <cmath>

#include "core/ops/add.h"
#include "core/ops/balance_loss.h"
#include "core/ops/binary_cross_entropy.h"
#include "core/ops/combine_rows.h"
#include "core/ops/gather_rows.h"
#include "core/ops/sigmoid_gate.h"
#include "core/ops/softmax.h"
#include "core/ops/top_k_route.h"
#include "core/tensor/convert.h"
#include "core/tensor/element.h"
#include "parallel/pool_choice.h"
#include "parallel/pool_rows.h"

namespace anabranch {
namespace {

constexpr int64_t kPredictorWidth = 64;

// The value of `x` on its tape, where gradients end.
Var stop_gradient(const Var& x) {
  if (x.tape() == nullptr) return x;
  return x.tape()->record("stop_gradient", x.value(), {}, [](Tape&, const Tensor&) {});
}

// The slots of all parts' rows, one after the other.
Tensor order_of(const std::vector<ExpertRows>& parts) {
  if (parts.size() == 1) return parts.front().slots;
  int64_t count = 0;
  for (const ExpertRows& rows : parts) count += rows.slots.count();
  Tensor order = parts.front().slots.like({count}, DType::kI32, "moep.order");
  int64_t first = 0;
  for (const ExpertRows& rows : parts) {
    order.view(first, rows.slots.shape()).copy_from(rows.slots);
    first += rows.slots.count();
  }
  return order;
}

Tensor zeros(int64_t count) {
  Tensor t({count}, DType::kF64);
  t.fill_zero();
  return t;
}

}  // namespace

int64_t MoepOptions::choices() const { return std::max<int64_t>(1, std::llround(keys.capacity)); }

MoepPredictor::MoepPredictor(const std::string& prefix, const MoepOptions& o)
    : hidden(prefix + "hidden", o.width, kPredictorWidth, true, Init::normal(kMoepInitStd)),
      out(prefix + "out", kPredictorWidth, o.experts(), true, Init::normal(kMoepInitStd)) {
  hidden.weight.wide = out.weight.wide = true;
}

Var MoepPredictor::operator()(const Var& normed) {
  const Var h = hidden(stop_gradient(normed));
  return out(sigmoid_gate(h, h));  // h sigmoid(h) is SiLU
}

MoepBlock::MoepBlock(const std::string& prefix, const MoepOptions& o, int64_t layer,
                     const Regions& regions)
    : options_(o),
      layer_(layer),
      regions_(regions),
      figures_(o.layers, o.experts()),
      router_norm_(prefix + "router.norm", o.width),
      router_(prefix + "router", o.width, o.experts(), false, Init::normal(kMoepInitStd)),
      down_(prefix + "down", o.width, o.keys.expert_width, false, Init::normal(kMoepInitStd)),
      first_expert_(Division{o.experts(), regions.model_size()}.begin(regions.model_rank())),
      up_(prefix + "up", o.keys.expert_width, o.width, false, Init::normal(kMoepInitStd)),
      ln_post_(prefix + "ln_post", o.width),
      threshold_{prefix + "threshold", zeros(o.experts())},
      pools_{prefix + "pools", zeros(1)} {
  router_.weight.wide = true;
  if (o.keys.global_block) {
    dense_.emplace(prefix, "attn.", "ffn.", WindowBlockSizes{o.width, o.heads, o.ffn_width});
  }
  if (o.keys.select == Selection::kPredictor) predictor_.emplace(prefix + "predictor.", o);
  experts_.reserve(o.keys.windows.size());
  const int64_t end = Division{o.experts(), regions.model_size()}.end(regions.model_rank());
  for (int64_t e = first_expert_; e < end; ++e) {
    experts_.emplace_back(
        prefix + "experts." + std::to_string(e) + ".", "", "",
        WindowBlockSizes{o.keys.expert_width, o.keys.expert_heads, o.expert_ffn_width});
    if (regions.model_size() == 1) continue;
    experts_.back().visit([](Param& w) { w.reduce = ReduceGroup::kData; });
  }
  AB_CHECK(!experts_.empty(), o.experts(), " experts for ", regions.model_size(), " ranks");
}

Var MoepBlock::operator()(const Var& x, const MoepPass& pass) {
  const Var X = dense_ ? (*dense_)(x, pass.batch, pass.positions, {}, pass.last_key) : x;
  const Choice choice = choose(router_norm_(X), pass, pass.losses.figures(x.tape()));
  Var y = with_experts(X, choice, pass);
  if (choice.loss.value().empty() || pass.losses.share == 0) return y;
  return pass.losses.attach(y, choice.loss, choice.weight);
}

MoepBlock::Choice MoepBlock::choose(const Var& normed, const MoepPass& pass, Measures* figures) {
  const Var logits = router_(normed);
  Choice choice = choose_from(normed, logits, pass, figures);
  if (figures != nullptr) figures_.add(*figures, layer_, choice.plan, logits.value());
  return choice;
}

MoepBlock::Choice MoepBlock::choose_from(const Var& normed, const Var& logits, const MoepPass& pass,
                                         Measures* figures) {
  if (options_.keys.select == Selection::kTokenChoice) return choose_by_token(logits, pass);
  const Var scores = softmax(logits);
  if (pass.predicted && predictor_) return choose_by_predictor(normed, scores);
  if (pass.causal) return {by_threshold(scores.value()), scores, {}, 0};
  return choose_by_expert(normed, scores, pass, figures);
}

MoepBlock::Choice MoepBlock::choose_by_token(const Var& logits, const MoepPass& pass) {
  const bool learns = pass.losses.share != 0;
  const int64_t ranks = regions_.pool_size(), k = options_.choices();
  const int64_t pool = learns ? options_.pool_sequences() * pass.tokens / ranks : 0;
  const TopKRoute route = top_k_route(logits, {k, GateForm::kProbability, 0, pool});
  Choice choice{route.plan, route.gates, {}, 0};
  if (!learns) return choice;
  const Tensor demand =
      ranks > 1 ? PoolCounts(route.demand, *regions_.pool).demand() : route.demand;
  choice.loss = balance_loss(logits, demand, {pool, k, ranks});
  choice.weight = options_.keys.aux_alpha / static_cast<double>(options_.layers);
  return choice;
}

ExpertChoice MoepBlock::choose_in_pool(const Tensor& scores, const MoepPass& pass) const {
  const int64_t rows = options_.pool_sequences() * pass.tokens;
  return anabranch::choose_in_pool(scores, {options_.keys.capacity, rows, SlotOrder::kTime},
                                   regions_.pool);
}

MoepBlock::Choice MoepBlock::choose_by_expert(const Var& normed, const Var& scores,
                                              const MoepPass& pass, Measures* figures) {
  const bool moved =
      options_.keys.select == Selection::kThreshold && *pools_.value.data<double>() > 0;
  if (moved && figures == nullptr) return {by_threshold(scores.value()), scores, {}, 0};
  const ExpertChoice chosen = choose_in_pool(scores.value(), pass);
  const bool notes = regions_.pool == nullptr || regions_.pool->rank() == 0;  // once for a pool
  if (figures != nullptr && notes) note_scores(*figures, chosen.kth, pass);
  if (moved) return {by_threshold(scores.value()), scores, {}, 0};
  Choice choice{chosen.plan, scores, {}, 0};
  if (!predictor_ || pass.losses.share == 0) return choice;
  choice.loss = binary_cross_entropy((*predictor_)(normed), membership(chosen.plan));
  choice.weight = options_.keys.predictor_weight;
  return choice;
}

MoepBlock::Choice MoepBlock::choose_by_predictor(const Var& normed, const Var& scores) {
  return {select_positive((*predictor_)(normed).value()), scores, {}, 0};
}

SlotPlan MoepBlock::by_threshold(const Tensor& scores) const {
  const Tensor threshold = converted(threshold_.value, scores.dtype(), "moep.threshold");
  return select_by_threshold(scores, threshold.beside(scores));
}

ExpertRows MoepBlock::rows_of(const Dispatched& part, const Tensor& gates,
                              const MoepPass& pass) const {
  const MoepKeys& keys = options_.keys;
  const bool apart = pass.causal || keys.segments == SegmentScope::kSequence;
  const RowLayout layout{apart ? pass.tokens : options_.pool_sequences() * pass.tokens,
                         pass.causal ? SlotOrder::kTime : keys.order,
                         keys.rope_position,
                         keys.window,
                         !pass.last_key.empty(),
                         part.first_slot};
  std::vector<int64_t> windows(experts_.size(), 0);
  if (keys.windowed)
    std::copy_n(keys.windows.begin() + first_expert_, windows.size(), windows.begin());
  return expert_rows(part.plan, layout, windows, gates, part.group_row);
}

Var MoepBlock::with_experts(const Var& x, const Choice& choice, const MoepPass& pass) {
  // The maps down and up are the same on every rank. Their gradients, which are summed over all of
  // them, must come from where a row is at home if ranks are not to matter to that sum.
  const bool at_home = regions_.any_layout;
  const PendingCounts counts = dispatch_counts(choice.plan, options_.experts(), regions_);
  const bool by_gate = counts.group != nullptr && options_.keys.order == SlotOrder::kAffinity;
  Tensor gates = choice.gates.value();
  if (by_gate) gates = slot_gates(gates, choice.plan);
  const PendingDispatch going = dispatch_start(at_home ? down_(x) : x, counts);
  PendingExchange sent_gates;
  if (by_gate) sent_gates = dispatch_slots_start(gates, going);
  const Dispatched at = dispatch_finish(going);
  if (by_gate) gates = dispatch_slots_finish(sent_gates, at).value();
  std::vector<Var> of_experts;
  std::vector<ExpertRows> parts;
  for_parts(at, regions_, [&](const Dispatched& part) {
    const Var low = at_home ? part.rows : down_(part.rows);
    const ExpertRows& rows = parts.emplace_back(rows_of(part, gates, pass));
    // An expert without rows runs too: other ranks' parts of its gradients must find this one's.
    for (size_t e = 0; e < experts_.size(); ++e) {
      const RowsOfExpert of = rows.of(static_cast<int64_t>(e));
      const Var y =
          experts_[e](gather_rows(low, of.source), 1, of.positions, of.first_key, of.last_key);
      of_experts.push_back(at_home ? y : up_(y));
    }
  });
  if (!at.route && !at_home) {  // in pieces, as they are: there is nothing to pack
    return ln_post_.add(x, combine_rows(of_experts, choice.gates, parts.front().plan)).norm;
  }
  const PendingExchange home = return_slots_start(of_experts, at, order_of(parts));
  const Var z = return_slots_finish(home);
  const Var o = combine_rows(at_home ? up_(z) : z, choice.gates, going.plan);
  return ln_post_.add(x, o).norm;
}

Products MoepBlock::products(int64_t sequences, int64_t layers) const {
  const MoepOptions& o = options_;
  const int64_t rows = sequences * o.context, E = o.experts();
  const int64_t pool = o.pool_sequences() * o.context;
  const int64_t held = o.keys.select == Selection::kTokenChoice
                           ? rows * o.choices() / E
                           : rows_per_expert(o.keys.capacity, pool, E) * (rows / pool);
  constexpr ProductRole kFrontEnd = ProductRole::kFrontEnd;
  Products products;
  if (dense_) {
    dense_->add_products(products, "", rows, layers);
    products.add_attention(
        {"attention", sequences, o.heads, o.context, o.width / o.heads, 0, 0, layers});
  }
  products.add(product_of("router", router_.weight, rows, layers, kFrontEnd));
  if (predictor_) {
    products.add(product_of("predictor", predictor_->hidden.weight, rows, layers, kFrontEnd));
    products.add(product_of("predictor out", predictor_->out.weight, rows, layers, kFrontEnd));
  }
  products.add(product_of("down", down_.weight, rows, layers));
  experts_.front().add_products(products, "experts ", held, layers * E);
  products.add(product_of("up", up_.weight, held, layers * E));
  const int64_t heads = o.keys.expert_heads;
  for (const int64_t window : o.keys.windows) {
    products.add_attention({"experts attention", sequences, heads, held / sequences,
                            o.keys.expert_width / heads, 0, o.keys.windowed ? window : 0, layers});
  }
  return products;
}

size_t MoepBlock::place(int64_t pool, int64_t expert) const {
  return figures_.places() +
         static_cast<size_t>((pool * options_.layers + layer_) * options_.experts() + expert);
}

int64_t MoepBlock::pools_of(const Measures& measures) const {
  const auto scores = static_cast<int64_t>(measures.places() - figures_.places());
  return scores / (options_.layers * options_.experts());
}

void MoepBlock::note_scores(Measures& to, const Tensor& kth, const MoepPass& pass) const {
  const int64_t E = options_.experts(), pools = pools_of(to);
  if (pools == 0) return;
  for (int64_t pool = 0; pool < kth.count() / E; ++pool) {
    to.add(place((pass.first_pool + pool) % pools, 0), kth.view(pool * E, {E}));
  }
}

void MoepBlock::end_step(const Measures& measures) {
  const double decay = options_.keys.threshold_decay;
  double& seen = *pools_.value.data<double>();
  for (int64_t pool = 0; pool < pools_of(measures); ++pool) {
    for (int64_t e = 0; e < options_.experts(); ++e) {
      double& theta = threshold_.value.data<double>()[e];
      const double kth = measures.at(place(pool, e));
      theta = seen == 0 ? kth : decay * theta + (1 - decay) * kth;
    }
    seen += 1;
  }
}

void MoepBlock::read(std::vector<Reading>& to, const Measures& measures) const {
  figures_.read(to, measures, layer_);
  if (options_.keys.select == Selection::kTokenChoice || element(pools_.value) == 0) return;
  for (int64_t e = 0; e < options_.experts(); ++e) {
    const double theta = element(threshold_.value, e);
    to.push_back({Metric::kExpertThreshold, static_cast<int>(layer_), static_cast<int>(e), theta});
  }
}

}  // namespace anabranch
