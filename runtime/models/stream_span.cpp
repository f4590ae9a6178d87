#include "runtime/models/stream_span.h"

#include "core/ops/add.h"
#include "core/ops/columns.h"
#include "core/ops/fold_streams.h"
#include "core/ops/mix_streams.h"

namespace anabranch {

StreamExpand::StreamExpand(const std::string& prefix, int64_t width, const CmollmKeys& keys)
    : front(prefix + ".", width, keys) {
  if (keys.variant != GateVariant::kLinear) return;
  plain.emplace(prefix, width, width, true, xavier(width, width));
}

StreamSpan::StreamSpan(const std::string& prefix, int64_t width, const CmollmKeys& keys,
                       const CopyRegion& where)
    : weights(
          prefix + "aggregate.", width, keys.streams,
          keys.agg == Aggregator::kMlp ? StreamWeights::Form::kGelu : StreamWeights::Form::kLinear),
      mix(prefix + "aggregate.mix", width, width, false, Init::constant(0)),
      proj(prefix + "aggregate.proj", width, width, true, Init::identity()),
      streams(keys.streams),
      beta(keys.beta) {
  expand.reserve(static_cast<size_t>(where.count()));
  for (int64_t k = where.first(); k < where.first() + where.count(); ++k) {
    expand.emplace_back(prefix + "expand." + std::to_string(k), width, keys);
    expand.back().visit([&](Param& w) { where.own(w); });
  }
}

Var StreamSpan::split(std::span<const Var> xs, std::span<const StreamContext> contexts) {
  std::vector<Var> all;
  for (size_t k = 0; k < expand.size(); ++k) all.push_back(expand[k](xs[k], contexts[k]));
  return unfold_streams(join_columns(all), std::ssize(all));
}

Var StreamSpan::merge(const Var& h, const StreamContext& context) {
  const Var folded = fold_streams(h, streams), a = weights(folded);
  const Var weighted = mix_streams(folded, a, beta);
  return context.balance(proj(mix(weighted) + mean_streams(folded, streams)), a);
}

}  // namespace anabranch
