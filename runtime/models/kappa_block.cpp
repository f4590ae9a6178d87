#include "runtime/models/kappa_block.h"

#include <algorithm>
#include <cmath>

#include "core/ops/add.h"
#include "core/ops/balance_loss.h"
#include "core/ops/columns.h"
#include "core/ops/combine_rows.h"
#include "core/ops/gather_rows.h"
#include "core/ops/grouped_linear.h"
#include "core/ops/kappa_swiglu.h"
#include "core/ops/mean_square.h"
#include "core/ops/qk_norm.h"
#include "core/ops/rope.h"
#include "core/ops/router_z_loss.h"
#include "core/ops/scale_gradient.h"
#include "core/ops/swiglu.h"
#include "core/ops/value_mix.h"
#include "runtime/config/model_config.h"

namespace anabranch {
namespace {

// Of standard deviation 1 / sqrt(C).
Init spread(const KappaOptions& o) {
  return Init::uniform(std::sqrt(3.0F / static_cast<float>(o.width)));
}

Param matrices(const std::string& name, Shape shape, Init init, int64_t count) {
  Param w(name, shape, init, true);
  w.owner = Owner::kMatrix;
  w.matrices = count;
  return w;
}

Param scalar(const std::string& name, double value, Role role) {
  Param w(name, {1}, Init::constant(static_cast<float>(value)));
  w.role = role;
  return w;
}

std::optional<Param> slope(const std::string& name, bool wanted, const KappaOptions& o,
                           const KappaKeys& keys) {
  if (!wanted) return std::nullopt;
  Param w(name, {keys.experts, o.ffn_width}, Init::constant(0));
  w.role = Role::kKappa;
  w.wide = true;
  return w;
}

}  // namespace

KappaAttention::KappaAttention(const std::string& prefix, const KappaOptions& o, bool embeddings)
    : qkv(prefix + "qkv", o.width, 3 * o.width, false, spread(o)),
      proj(prefix + "proj", o.width, o.width, false, Init::constant(0)),
      heads(o.heads) {
  qkv.weight.matrices = 3;
  if (!embeddings) return;
  value_embedding.emplace(prefix + "value_embedding.weight", Shape{o.vocabulary, o.width},
                          spread(o));
  value_embedding->role = Role::kEmbedding;
  value_gate = matrices(prefix + "value_gate.weight", {o.heads, std::min(kGateChannels, o.width)},
                        Init::constant(0), 1);
  value_gate->wide = true;
}

Var KappaAttention::operator()(const Var& u, const KappaContext& context) {
  Var x = qkv(u);
  if (value_embedding) {
    const Var logits = linear(first_columns(u, value_gate->shape[1]), *value_gate);
    x = value_mix(x, embedding(u.tape(), context.ids, *value_embedding), logits);
  }
  const RopeForm form{heads, heads, u.dim(1) / heads, 10000, true};
  return proj(context.attend(qk_norm(rope(x, context.positions, form), heads, kKappaNormEps)));
}

KappaDense::KappaDense(const std::string& prefix, const KappaOptions& o)
    : in(prefix + "in", o.width, 2 * o.ffn_width, false, spread(o)),
      out(prefix + "out", o.ffn_width, o.width, false, Init::constant(0)) {
  in.weight.matrices = 2;
}

Var KappaDense::operator()(const Var& u) { return out(swiglu(in(u))); }

KappaMixture::KappaMixture(const std::string& prefix, const KappaOptions& o, const KappaKeys& k,
                           const Regions& r)
    : keys(k),
      router(prefix + "router", o.width, k.experts, false, spread(o)),
      in(matrices(prefix + "experts.in.weight", {k.experts, 2 * o.ffn_width, o.width}, spread(o),
                  2 * k.experts)),
      out(matrices(prefix + "experts.out.weight", {k.experts, o.width, o.ffn_width},
                   Init::constant(0), k.experts)),
      alpha(slope(prefix + "experts.alpha", k.kappa && k.kappa_alpha, o, k)),
      b(slope(prefix + "experts.b", k.kappa && k.kappa_b, o, k)),
      regions(r) {
  router.weight.wide = true;
  for (Param* w : {&in, &out, alpha ? &*alpha : nullptr, b ? &*b : nullptr}) {
    if (w != nullptr) split_over(regions.model, *w, 0);
  }
}

Kappa KappaMixture::form() const {
  return {keys.kappa_range, keys.kappa_scale_alpha, keys.kappa_scale_b, keys.kappa_router_grad};
}

GateWeights KappaMixture::gate_weights() const {
  return {router.weight.value,
          in.value,
          alpha ? &alpha->value : nullptr,
          b ? &b->value : nullptr,
          form(),
          in.slice_begin,
          regions.model};
}

Var KappaMixture::experts_of(const Dispatched& at) {
  const Groups& groups = at.plan.groups;
  const Var rows = grouped_linear(gather_rows(at.rows, at.plan.source), in, groups);
  if (!alpha && !b) return grouped_linear(swiglu(rows), out, groups);
  const Var h =
      kappa_swiglu(rows, at.values, alpha ? &*alpha : nullptr, b ? &*b : nullptr, groups, form());
  return grouped_linear(h, out, groups);
}

Var KappaMixture::with_mean_square(const Var& gates, std::optional<Param>& w, double weight,
                                   const AuxiliaryLosses& losses) const {
  if (!w || weight == 0) return gates;
  // The gradient of a part is summed over the ranks that have the same one, whose micro-batches
  // are 1 / parts of the step, unless it is added for each source; and its mean is over its own
  // elements.
  const double of_all = static_cast<double>(w->parts * w->shape.count()) /
                        static_cast<double>(w->global_shape.count() * regions.sources());
  Var y = gates;
  regions.for_sources(gates.tape(), [&](int /*source*/) {
    y = losses.attach(y, mean_square(y.tape(), *w), weight * of_all);
  });
  return y;
}

Var KappaMixture::with_losses(const TopKRoute& route, const Var& u, const Var& logits,
                              const std::optional<PoolCounts>& pool, const KappaContext& context) {
  const AuxiliaryLosses& losses = context.losses;
  Var gates = route.gates;
  if (gates.tape() == nullptr || losses.share == 0) return gates;
  if (Measures* to = losses.figures(gates.tape()); to != nullptr) {
    context.figures->add(*to, context.layer, logits.value(), route);
    context.gate_figures->add(*to, context.layer, route);
  }
  if (context.balance > 0) {
    const BalanceRule rule{context.rule.pool_rows, 1, regions.pool_size()};
    const Tensor demand = pool ? pool->demand() : route.demand;
    gates = losses.attach(gates, balance_loss(logits, demand, rule), context.balance);
  }
  if (keys.z_loss > 0) {
    const Var own = keys.z_input_grad == 1 ? logits : router(scale_gradient(u, keys.z_input_grad));
    gates = losses.attach(gates, router_z_loss(own, keys.z_form), keys.z_loss);
  }
  gates = with_mean_square(gates, alpha, keys.l2_alpha, losses);
  return with_mean_square(gates, b, keys.l2_b, losses);
}

TopKRoute KappaMixture::route_of(const Var& logits, const KappaContext& context,
                                 std::optional<PoolCounts>& pool) const {
  if (regions.pool_size() == 1) return top_k_route(logits, context.rule);
  TopKRule rule = context.rule;
  rule.before = [&](const Tensor& counts) { return pool.emplace(counts, *regions.pool).before(); };
  TopKRoute route = top_k_route(logits, rule);
  if (context.balance > 0 && !pool) pool.emplace(route.demand, *regions.pool);
  return route;
}

Var KappaMixture::operator()(const Var& u, const KappaContext& context) {
  const Var logits = router(u);
  std::optional<PoolCounts> pool;
  const TopKRoute route = route_of(logits, context, pool);
  const PendingCounts counts = dispatch_counts(route.plan, keys.experts, regions);
  const Var gates = with_losses(route, u, logits, pool, context);
  const PendingDispatch rows = dispatch_start(u, counts);
  PendingExchange scores;
  if (alpha) scores = dispatch_slots_start(route.selected, rows);
  Dispatched at = dispatch_finish(rows);
  if (alpha) at.values = dispatch_slots_finish(scores, at);
  std::vector<Var> z;
  for_parts(at, regions, [&](const Dispatched& part) { z.push_back(experts_of(part)); });
  const PendingExchange home = return_slots_start(z, at);
  return combine_rows(return_slots_finish(home), gates, rows.plan);
}

KappaBlock::KappaBlock(int64_t layer, const KappaOptions& o, const KappaKeys& keys,
                       const Regions& regions)
    : resid_lambda(scalar("h." + std::to_string(layer) + ".resid_lambda", 1, Role::kResidual)),
      x0_lambda(
          scalar("h." + std::to_string(layer) + ".x0_lambda", keys.x0_init, Role::kInputResidual)),
      attn("h." + std::to_string(layer) + ".attn.", o, layer % 2 == (o.layers - 1) % 2) {
  const std::string prefix = "h." + std::to_string(layer) + ".";
  if (o.mixture[static_cast<size_t>(layer)]) {
    mixture.emplace(prefix, o, keys, regions);
  } else {
    dense.emplace(prefix + "ffn.", o);
  }
}

Var KappaBlock::operator()(const Var& x, const KappaContext& context) {
  const auto [h, u] = add_rms_norm(x, attn(rms_norm(x, kKappaNormEps), context), kKappaNormEps);
  return h + (mixture ? (*mixture)(u, context) : (*dense)(u));
}

}  // namespace anabranch
