#include "runtime/models/stream_ffn.h"

#include <cmath>

#include "core/ops/adaptive_gate.h"
#include "core/ops/block_linear.h"
#include "core/ops/rows.h"
#include "core/ops/sigmoid_gate.h"
#include "core/ops/softmax.h"
#include "core/ops/stream_gelu_mix.h"
#include "core/ops/stream_linear.h"

namespace anabranch {
namespace {

const Init kInit = Init::normal(kGpt2InitStd);

bool reads_context(GateVariant variant) {
  return variant == GateVariant::kContextAware || variant == GateVariant::kAdaptive;
}

}  // namespace

Init xavier(int64_t in, int64_t out) {
  return Init::uniform(static_cast<float>(std::sqrt(6.0 / static_cast<double>(in + out))));
}

FrontEnd::FrontEnd(const std::string& prefix, int64_t width, const CmollmKeys& keys)
    : variant(keys.variant) {
  if (variant == GateVariant::kLinear) return;
  const auto square = [&](const char* name) {
    return Linear(prefix + name, width, width, true, kInit);
  };
  if (variant == GateVariant::kContextAware) norm.emplace(prefix + "norm", width);
  feature.emplace(square("feature"));
  const bool sliced = variant == GateVariant::kMultiHead && keys.head_input == HeadInput::kSlice;
  if (sliced) {
    const int64_t D = width / keys.gate_heads;
    slices.emplace(prefix + "gate.weight", Shape{keys.gate_heads, D, D}, kInit, true);
    slices->owner = Owner::kMatrix;
    slices->matrices = keys.gate_heads;
    slices_bias.emplace(prefix + "gate.bias", Shape{width}, Init::constant(0));
  } else {
    gate.emplace(square("gate"));
  }
  if (reads_context(variant)) squeeze.emplace(prefix + "squeeze", width, width / 4, true, kInit);
  if (variant == GateVariant::kContextAware) {
    excite.emplace(prefix + "excite", width / 4, width, true, kInit);
  }
  if (variant == GateVariant::kAdaptive) {
    scales.emplace(prefix + "scales", width / 4, 3, true, Init::constant(0));
    scales->weight.wide = true;
  }
  if (variant == GateVariant::kMultiHead) fuse.emplace(square("fuse"));
}

Var FrontEnd::gated(const Var& u) {
  const Var a = slices ? block_linear(u, *slices, *slices_bias) : (*gate)(u);
  return sigmoid_gate((*feature)(u), a);
}

Var FrontEnd::operator()(const Var& u, const StreamContext& context) {
  const auto squeezed = [&](const Var& v) {
    return gelu((*squeeze)(context.mean(v)), GeluForm::kTanh);
  };
  switch (variant) {
    case GateVariant::kLinear:
      return u;
    case GateVariant::kSimple:
      return gated(u);
    case GateVariant::kContextAware: {
      const Var v = (*norm)(u);
      return sigmoid_gate(gated(v), (*excite)(squeezed(v)));
    }
    case GateVariant::kMultiHead:
      return (*fuse)(gated(u));
    case GateVariant::kAdaptive:
      return adaptive_gate((*feature)(u), (*gate)(u), (*scales)(squeezed(u)));
  }
  AB_FAIL("unknown gate variant ", static_cast<int>(variant));
}

void FrontEnd::add_products(Products& products, int64_t rows, int64_t count) const {
  constexpr ProductRole kRole = ProductRole::kFrontEnd;
  const auto add = [&](const char* name, const std::optional<Linear>& part) {
    if (part) products.add(product_of(name, part->weight, rows, count, kRole));
  };
  add("gate feature", feature);
  add("gate", gate);
  if (slices) {  // each head reads columns of its own from every row
    const int64_t D = slices->shape[-1];
    products.add({"gate slices", rows, D, D, 1, slices->shape[0] * count, kRole});
  }
  add("gate squeeze", squeeze);
  add("gate excite", excite);
  add("gate scales", scales);
  add("gate fuse", fuse);
}

MeanForm mean_form(const CmollmKeys& keys) {
  switch (keys.ctx) {
    case GateContext::kEma:
      return {MeanForm::Kind::kEma, keys.ctx_decay};
    case GateContext::kGlobal:
      return {MeanForm::Kind::kGlobal};
    default:
      return {};
  }
}

FrontEndSize front_end_size(int64_t width, const CmollmKeys& keys) {
  const int64_t C = width;
  const int64_t D = C / std::max<int64_t>(keys.gate_heads, 1), quarter = C / 4;
  const int64_t gates = keys.head_input == HeadInput::kSlice ? C * D : C * C;
  switch (keys.variant) {
    case GateVariant::kLinear:
      return {0, 0};
    case GateVariant::kSimple:
      return {2 * (C * C + C), 2 * C * C};
    case GateVariant::kContextAware:
      return {2 * (C * C + C) + 2 * C + 2 * C * quarter + quarter + C, 2 * C * C + 2 * C * quarter};
    case GateVariant::kMultiHead:
      return {2 * (C * C + C) + gates + C, 2 * C * C + gates};
    case GateVariant::kAdaptive:
      return {2 * (C * C + C) + C * quarter + quarter + 3 * quarter + 3,
              2 * C * C + C * quarter + 3 * quarter};
  }
  return {0, 0};
}

StreamFfn::StreamFfn(const std::string& prefix, const Gpt2Options& o, const CmollmKeys& keys,
                     const StreamRegion& where)
    : front(prefix + "front.", o.width, keys),
      router(prefix + "router", o.width, keys.streams, true, kInit),
      streams(prefix + "streams.weight", {keys.streams, o.ffn_width, o.width},
              xavier(o.width, o.ffn_width), true),
      stream_bias(prefix + "streams.bias", {keys.streams, o.ffn_width}, Init::constant(0)),
      down(prefix + "down", o.ffn_width, o.width, true, residual_init(o)),
      mixes_after(keys.mix == MixPoint::kPost),
      to_streams(keys.gate_site == GateSite::kFeature),
      order(keys.mix_order),
      form(o.gelu),
      region(where) {
  router.weight.wide = true;
  streams.owner = Owner::kMatrix;
  streams.matrices = keys.streams;
  stream_bias.wide = true;
  const int axis = region.slices() ? 1 : 0;
  region.split(streams, axis);
  region.split(stream_bias, axis);
  if (region.slices()) region.split(down.weight, 1);
}

Var StreamFfn::operator()(const Var& u, const StreamContext& context) {
  const Var z = front(u, context), s = to_streams ? z : u;
  const Var g = softmax(router(z));
  if (context.probe) context.probe(s, streams);
  return context.balance(region.slices() ? of_slices(s, g) : of_streams(s, g), g);
}

Var StreamFfn::of_streams(const Var& s, const Var& g) {
  const Var mixed = region.sum(s, g, s.dtype(), [this](const Var& rows, const Var& gates) {
    return mix(rows, gates, region.part_sums());
  });
  return down(phi(mixed));
}

Var StreamFfn::of_slices(const Var& s, const Var& g) {
  const DType sums = accumulator_of(s.dtype());
  const Var y = region.sum(s, g, sums, [this](const Var& rows, const Var& gates) {
    return linear_wide(phi(mix(rows, gates, SumType::kRounded)), down.weight);
  });
  return add_row(y, *down.bias, s.dtype());
}

Var StreamFfn::mix(const Var& s, const Var& g, SumType sums) {
  return mixes_after ? stream_gelu_mix(s, g, streams, stream_bias, sums, region.order())
                     : stream_linear(s, g, streams, stream_bias, order, sums, region.order());
}

Var StreamFfn::phi(const Var& mixed) const { return mixes_after ? mixed : gelu(mixed, form); }

void StreamFfn::add_products(Products& products, int64_t rows, int64_t count) const {
  front.add_products(products, rows, count);
  products.add(product_of("router", router.weight, rows, count, ProductRole::kFrontEnd));
  const Shape& kernels = streams.global_shape;
  // Every stream has every row.
  products.add({"streams", rows, kernels[2], kernels[1], 1, kernels[0] * count});
  products.add({"feed-forward out", rows, kernels[1], kernels[2], 1, count});
}

}  // namespace anabranch
